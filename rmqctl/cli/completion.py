"""`rmqctl completion`, and the answers to the functions that it prints.

Whoever writes a store chooses the names in it, so a name that a shell inserts must stay one word and run nothing. zsh
and fish quote what they insert. bash inserts it as it is, so these answers are quoted for bash.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import (
    BashComplete,
    FishComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from rmqctl.cli.shared.verb import Verb
from rmqctl.errors import ExitCode

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_PLAIN = re.compile(r"[\w%+,./-]+", re.ASCII)  # nothing in it means anything to a shell
_NOT_PLAIN = re.compile(r"[^\w%+,./-]", re.ASCII)
_WHOLE_QUOTATION = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_SCRIPT_OF_BASH = r"""%(complete_func)s() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            dir,*) compopt -o dirnames ;;
            file,*) compopt -o default ;;
            plain,*) COMPREPLY+=("${line#plain,}") ;;
        esac
    done < <(env RMQCTL_LINE="${COMP_LINE:0:COMP_POINT}" RMQCTL_REPLACED="$2" \
        %(complete_var)s=bash_complete "$1" 2>/dev/null)
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class QuotingBash(BashComplete):
    """Completion for bash: each answer is quoted for the place where bash inserts it.

    bash replaces only the end of a word: what follows an open quote or a character of COMP_WORDBREAKS. The script gives
    this end, and the line up to the cursor. The script of rmqctl 0.1 gives neither and takes backslashes away: it gets
    plain names only.
    """

    source_template = _SCRIPT_OF_BASH

    def complete(self) -> str:
        """Return a line for each proposal: its type, a comma, and what bash inserts."""
        line = os.environ.get("RMQCTL_LINE")
        if line is None:
            items = self.get_completions(*self.get_completion_args())
            return "\n".join(map(self.format_completion, filter(_is_plain, items)))
        words = split_arg_string(f"{line}x")  # the x makes a word of the cursor's, even if nothing is typed yet
        word = words.pop()[:-1]
        quote = _open_quote(line)
        replaced = split_arg_string(f"{quote}{os.environ['RMQCTL_REPLACED']}x")[0][:-1]
        if not word.endswith(replaced):
            return ""
        kept = word.removesuffix(replaced)
        option = word[: word.index("=") + 1] if word.startswith("-") and "=" in word else ""
        answers = []
        for item in self.get_completions(words[1:], word):
            whole = option + item.value
            if item.type != "plain":
                answers.append(f"{item.type},")
            elif whole.startswith(kept):
                answers.append(f"plain,{_quoted(whole.removeprefix(kept), quote)}")
        return "\n".join(answers)


class CautiousFish(FishComplete):
    """Completion for fish, which does not quote a `~` at the begin of a name.

    click's script cuts a name at its first comma.
    """

    source_template = FishComplete.source_template.replace("string split ", "string split --max 1 ")

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        """Return click's proposals that fish can insert."""
        return [item for item in super().get_completions(args, incomplete) if not item.value.startswith("~")]


def add_shells() -> None:
    """Let click complete for bash and fish by the classes above."""
    add_completion_class(QuotingBash)
    add_completion_class(CautiousFish)


def _is_plain(item: CompletionItem[Any]) -> bool:
    return item.type != "plain" or _PLAIN.fullmatch(item.value) is not None


def _open_quote(line: str) -> str:
    """Return the quote that is open at the end of `line`; empty for none."""
    return next((character for character in _WHOLE_QUOTATION.sub("", line) if character in "'\""), "")


def _quoted(text: str, quote: str) -> str:
    """Return `text` as bash needs it behind this open quote, so that it means itself.

    bash closes the quote, unless the last character looks like the closing one.
    """
    if not quote:
        return _NOT_PLAIN.sub(r"\\\g<0>", text)
    if quote == "'":
        inside = text.replace("'", r"'\''")
    else:  # a backslash before `!` would stay in the text
        inside = re.sub(r'["$`\\]', r"\\\g<0>", text).replace("!", "\"'!'\"")
    return inside + quote if inside.endswith(quote) else inside


@click.command(
    cls=Verb,
    examples="""
        # for all users of bash
        rmqctl completion bash > /etc/bash_completion.d/rmqctl
        # for zsh, where ~/.zfunc is in fpath
        rmqctl completion zsh > ~/.zfunc/_rmqctl
        # for fish
        rmqctl completion fish > ~/.config/fish/completions/rmqctl.fish
    """,
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def command(shell: str) -> int:
    """Print a script that adds completion of verbs, options and paths to a shell."""
    add_shells()
    found = get_completion_class(shell)
    if found is None:
        raise click.BadParameter(f"click does not complete for {shell}", param_hint="SHELL")
    click.echo(found(click.get_current_context().find_root().command, {}, "rmqctl", "_RMQCTL_COMPLETE").source())
    return int(ExitCode.CLEAN)
