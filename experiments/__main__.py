"""Entry point of `python -m experiments`."""

import sys

from experiments.command_line import main

sys.exit(main())
