"""``python -I -m governor.cli``: the command without its script."""

import sys

from governor.cli import main

sys.exit(main())
