"""`python -m annotated`, the same as the command `annotated`."""

import sys

from annotated.translation.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
