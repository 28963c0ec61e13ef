"""`python -m rmqctl`."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the folder that this is run in: it may be a store, with anybody's modules in it

from rmqctl.cli.main import main

if __name__ == "__main__":
    main()
