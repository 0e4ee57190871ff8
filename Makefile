# On a machine with Python 3.11+ and make: `make demo`, `make test`, `make reproduce TABLE=faust`. All build .venv.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready

.PHONY: demo reproduce test lint format clean

demo: $(READY)
	$(RUN) -m experiments demo --json demo.json --picture demo.png

# TABLE is mnist, superpixels, ablation, faust, uncertainty, few-labels, graphs or figures; ARGS are further options, such as --jobs 2.
reproduce: $(READY)
	$(RUN) -m experiments $(or $(TABLE),$(error set TABLE, for example: make reproduce TABLE=faust)) $(ARGS)

test: $(READY) lint
	OMP_WAIT_POLICY=passive $(RUN) -m pytest --numprocesses auto --dist worksteal

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(READY)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

$(READY): pyproject.toml constraints.txt
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --constraint constraints.txt torch
	$(RUN) -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) demo.json demo.png
