"""Run rmqctl as `python -m rmqctl`."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the working directory may be a store, with modules that anyone can put there

from rmqctl.cli.main import main

if __name__ == "__main__":
    main()
