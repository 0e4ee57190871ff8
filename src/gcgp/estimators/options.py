"""Options of estimators that do not change the model: precision, device, memory, checkpoint and progress."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gcgp._runtime.errors import check_choice
from gcgp._runtime.memory import as_bytes
from gcgp._runtime.options import Options

DTYPES = {"float32": torch.float32, "float64": torch.float64}
MAX_FLOAT64_EVALUATIONS = 20_000_000
"""Number of kernel values per epoch up to which `dtype="auto"` means float64.

Rounding in float32 can change which of two equally good models a search chooses. With few signals, where
such ties are common, float64 takes little time.
"""


@dataclass(eq=False, repr=False)
class Runtime(Options):
    """How a model is computed.

    Args:
        dtype: Of patches and kernel values: `"float32"`, `"float64"`, or `"auto"`: float64 for small data.
            Sums and solves always use float64.
        device: Where torch sums kernels over patches, which is most of the work: `"cpu"`, `"cuda"`, ...
            Patches are computed, and linear systems solved, on the CPU.
        memory_limit: Memory for the patches of one run of signals, in bytes or as `"500 MB"`. Learning keeps
            as much between epochs, so that more is faster.
        checkpoint: A file that keeps the state of learning and of iterative inference. An interrupted fit
            that is restarted with the same data and options resumes from it. It needs an integer
            `random_state`.
        progress: Whether long computations show a progress bar on a terminal.

    >>> Runtime(memory_limit="2 GB")
    Runtime(memory_limit='2 GB')
    """

    dtype: str = "auto"
    device: str = "cpu"
    memory_limit: int | str = "500 MB"
    checkpoint: Any = None
    progress: bool = True

    def validate(self) -> None:
        """Raise a ValueError that names the first field with an invalid value."""
        check_choice("dtype", self.dtype, ("auto", *DTYPES))
        as_bytes(self.memory_limit)
        as_device(self.device)
        if self.checkpoint is not None and not Path(self.checkpoint).absolute().parent.is_dir():
            raise ValueError(f"checkpoint={str(self.checkpoint)!r}: the folder does not exist")

    def torch_dtype(self, evaluations: int) -> torch.dtype:
        """The dtype for this number of kernel values per epoch."""
        if self.dtype == "auto":
            return torch.float64 if evaluations <= MAX_FLOAT64_EVALUATIONS else torch.float32
        return DTYPES[self.dtype]


def resolve_runtime(value: Any) -> Runtime:
    """The `Runtime` that an estimator's argument `runtime` stands for."""
    if value is not None and not isinstance(value, Runtime):
        raise ValueError(f"runtime={value!r}: expected a Runtime, or None for the defaults")
    runtime = Runtime() if value is None else value
    runtime.validate()
    return runtime


def as_device(name: Any) -> torch.device:
    """The device of that name; a ValueError if torch does not have it on this machine."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device={name!r}: torch has no such device here ({reason})") from error
    if device.type == "meta":
        raise ValueError(f"device={name!r}: tensors on this device have no values")
    return device
