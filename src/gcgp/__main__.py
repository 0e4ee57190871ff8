"""`python -m gcgp` is the command `gcgp`."""

import sys

from gcgp.surface.command_line import main

sys.exit(main())
