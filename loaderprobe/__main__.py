"""`python -m loaderprobe`: the command without its script."""

import sys

from loaderprobe.cli import main

sys.exit(main())
