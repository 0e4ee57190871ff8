"""`python -m experiments`: the demo, and the tables and figures of the paper."""

import sys

from experiments.command_line import main

sys.exit(main())
