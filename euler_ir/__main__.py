"""``python -m euler_ir`` is ``euler-ir``."""

import sys

from euler_ir.cli import main

if __name__ == "__main__":
    sys.exit(main())
