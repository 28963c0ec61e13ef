"""Completion in the real shells: whatever a name in a store holds, it stays one word, and nothing of it runs.

bash is on every machine that runs these tests; zsh and fish are tried where they are installed, as `.ci/run` does.
"""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from rmqctl.cli.completion import _quoted

SHELLS = [shell for shell in ("bash", "zsh", "fish") if shell == "bash" or shutil.which(shell)]
# each is completed from its first character
NAMES = (
    "a;touch X;#",
    'b$(touch X)`touch X`"$(touch X)"',
    "c'd\"e\\f'",
    "g!! *?[h] {1,2}|&<>()~^=:@,é",
    "%RETRY%group",
)
SECONDS = 60
_FUNCTION = "rmqctl() { printf '%s\\0' \"$@\" > got.new; mv got.new got; }"
START = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], f"source ./script; {_FUNCTION}\n"),
    "zsh": (
        ["zsh", "-f", "-i"],
        f"setopt extendedglob; autoload -U compinit; compinit -u -D; source ./script; {_FUNCTION}\n",
    ),
    "fish": (
        ["fish", "--no-config", "-i"],
        "source ./script; function rmqctl; printf '%s\\0' $argv > got.new; mv got.new got; end\n",
    ),
}


class Terminal:
    """An interactive shell with rmqctl's completion, in a folder with a store `s`.

    In it, the command `rmqctl` notes its arguments in the file `got`. The program `rmqctl`, which completion calls,
    notes each call in the file `asked`.
    """

    def __init__(self, shell: str, folder: Path) -> None:
        self.shell = shell
        self.folder = folder
        program = folder / "bin" / "rmqctl"
        program.parent.mkdir()
        real = Path(sys.executable).with_name("rmqctl")
        program.write_text(f'#!/bin/sh\n{real} "$@"\necho >> "{folder}/asked"\n')
        program.chmod(0o755)
        path = f"{program.parent}:/usr/local/bin:/usr/bin:/bin"
        environment = {"HOME": str(folder), "PATH": path, "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        script = subprocess.run([real, "completion", shell], capture_output=True, env=environment, check=True)
        (folder / "script").write_bytes(script.stdout)
        words, self._setup = START[shell]
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.execvpe(words[0], words, environment)

    def __enter__(self) -> Terminal:
        self._type("echo > ready\n")
        self._wait_for("ready", 1)
        self._type(self._setup)
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._terminal)

    def completed(self, line: str) -> list[str]:
        """Type a line, press Tab, then Enter; return the arguments of the command that ran."""
        for name in ("asked", "got"):
            (self.folder / name).unlink(missing_ok=True)
        self._type(f"{line}\t")
        self._wait_for("asked", 1)
        self._type("\r")
        self._wait_for("got", 1)
        return (self.folder / "got").read_bytes().decode(errors="surrogateescape").split("\0")[:-1]

    def _type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def _wait_for(self, name: str, size: int) -> None:
        """Read what the shell shows until the file `name` has `size` bytes."""
        file, end = self.folder / name, time.monotonic() + SECONDS
        shown = b""
        while not (file.exists() and file.stat().st_size >= size):
            assert time.monotonic() < end, shown
            if select.select([self._terminal], [], [], 0.02)[0]:
                data = os.read(self._terminal, 1 << 16)
                shown += data
                if b"\x1b[c" in data or b"\x1b[0c" in data:  # fish asks what terminal this is
                    os.write(self._terminal, b"\x1b[?62;c")


@pytest.fixture(scope="module", params=SHELLS)
def terminal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    folder = tmp_path_factory.mktemp(request.param)
    for name in NAMES:
        (folder / "s" / "consumequeue" / name).mkdir(parents=True)
    (folder / "tilde" / "consumequeue" / "~root").mkdir(parents=True)
    with Terminal(request.param, folder) as opened:
        yield opened


@pytest.mark.parametrize("quote", ["", "'", '"'], ids=["no quote", "single", "double"])
def test_a_name_is_one_word_and_runs_nothing(quote: str, terminal: Terminal) -> None:
    for name in NAMES:
        assert terminal.completed(f"rmqctl queue s {quote}{name[0]}")[-1] == name
    assert not list(terminal.folder.glob("X*"))


def test_the_value_of_an_option(terminal: Terminal) -> None:
    assert terminal.completed("rmqctl dump s --topic a") == ["dump", "s", "--topic", NAMES[0]]


def test_a_tilde_is_not_expanded(terminal: Terminal) -> None:
    """fish does not quote a tilde, and gets no such name."""
    assert terminal.completed("rmqctl queue tilde ")[2:] == ([] if terminal.shell == "fish" else ["~root"])


def test_bash_reads_a_quoted_text_as_itself() -> None:
    ascii_texts = [chr(code) for code in range(0x20, 0x7F)]
    texts = [*ascii_texts, *map("".join, product(ascii_texts, repeat=2)), "é\u4e00"]
    answers = [(quote, _quoted(text, quote)) for text in texts for quote in ("", "'", '"')]
    closed = (
        quote + answer + ("" if answer.endswith(quote) else quote) for quote, answer in answers
    )  # as readline does
    line = "printf '%s\\0' " + " ".join(closed)
    done = subprocess.run(["bash", "--norc"], input=line, capture_output=True, text=True, check=True)
    assert done.stdout.split("\0")[:-1] == [text for text in texts for _ in range(3)]


def test_an_older_script_of_bash_gets_plain_names_only(tmp_path: Path) -> None:
    """It splits the answer into words, expands them as file names, and drops backslashes."""
    for name in NAMES:
        (tmp_path / "consumequeue" / name).mkdir(parents=True)
    line = {"COMP_WORDS": f"rmqctl\nqueue\n{tmp_path}\n", "COMP_CWORD": "3", "_RMQCTL_COMPLETE": "bash_complete"}
    program = Path(sys.executable).with_name("rmqctl")
    done = subprocess.run([program], env=os.environ | line, capture_output=True, text=True, check=True)
    assert done.stdout == "plain,%RETRY%group\n"
