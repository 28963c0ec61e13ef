"""A program: command lines of `rmqctl` one after the other in one Spark session, since each costs seconds to begin.

Its arguments, as JSON, are where the session is, (master, remote), and a list of command lines. It prints a line for
each: its exit status, stdout and stderr, and when it was begun and done (epoch ms).
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from contextlib import redirect_stderr, redirect_stdout

from rmqctl.cli.main import run
from rmqctl.spark.session.session import Target, session


def main() -> None:
    with session(Target(*json.loads(sys.argv[1])), os.environ) as spark:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        for line in json.loads(sys.argv[2]):
            begin, out, err = time.time(), io.StringIO(), io.StringIO()
            with redirect_stdout(out), redirect_stderr(err):
                code = run(line)
            print(
                json.dumps([code, out.getvalue(), err.getvalue(), int(begin * 1000), int(time.time() * 1000)]),
                flush=True,
            )


if __name__ == "__main__":
    main()
