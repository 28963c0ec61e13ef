"""Run rmqctl as `python -m rmqctl`, or as the program `rmqctl`."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the working directory may be a store, with modules that anyone can put there

import rmqctl.cli  # noqa: F401 -- first: it leaves the current folder, so that no other import is from there


def start() -> None:
    """Run the command line; Ctrl-C ends it even while modules are imported."""
    import os
    import signal

    def end(*_: object) -> None:
        os.write(2, b"rmqctl: interrupted\n")
        os._exit(130)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end)
    from rmqctl.cli.main import main

    try:
        main()
    except KeyboardInterrupt:  # before the command began, or after it ended
        end()


if __name__ == "__main__":
    start()
