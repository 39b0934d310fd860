"""`./stateful`, once all that it needs is installed: `python -m include.cli`."""

import sys

from include.cli import author, jobs, state, tables
from include.cli.app import main

# Each registers its commands.
COMMANDS = (jobs, state, tables, author)

if __name__ == "__main__":
    sys.exit(main())
