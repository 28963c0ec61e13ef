"""`rmqctl explain`."""

from __future__ import annotations

import click

from rmqctl.cli.output.render import print_fields, print_table
from rmqctl.cli.shared.verb import Verb
from rmqctl.errors import EXIT_CODE_MEANINGS, ExitCode


@click.command(
    cls=Verb,
    examples="""
        # all codes
        rmqctl explain
        # a finding
        rmqctl explain hole
        # a cause that `rmqctl doctor` names
        rmqctl explain log-tail-gone
        # an exit code
        rmqctl explain 13
        # the records that `recover --keep-going` writes over damage
        rmqctl explain placeholder
    """,
)
@click.argument("code", required=False)
def command(code: str | None) -> int:
    """Explain a finding, a cause, a term or an exit code, and name the next command.

    In the command that `explain` proposes, STORE is the store, and OFFSET is the physical offset of the finding. VERB
    is the verb that you ran. After --broker-conf, FILE is the broker's broker.conf. After `config restore STORE`, FILE
    is the name of the file of config/ that the finding names, for example topics.json. After `>`, FILE is any file for
    the output. Without CODE, `explain` lists all codes.
    """
    from rmqctl.cli.shared.next_commands import COMMANDS_OF_CAUSES, EXIT_CODE_ADVICE, LOOK_FURTHER, NEXT_COMMANDS
    from rmqctl.forensics.catalogue.catalogue import CATALOGUE, TERMS
    from rmqctl.forensics.doctor.causes import CAUSES
    from rmqctl.store.read.topic_names import nearest_name

    if code is None:
        for heading, explained in (("CAUSE", CAUSES), ("FINDING", CATALOGUE), ("TERM", TERMS)):
            print_table([heading, "MEANING"], [[name, found.meaning] for name, found in explained.items()])
            print()
        print_table(
            ["EXIT STATUS", "MEANING"], [[int(number), meaning] for number, meaning in EXIT_CODE_MEANINGS.items()]
        )
        return int(ExitCode.CLEAN)
    code = code.lower()
    if code in CAUSES:
        found = CAUSES[code]
        fields = [("cause", code), ("meaning", found.meaning), ("means", found.means), ("known bug", found.issue)]
        following = COMMANDS_OF_CAUSES.get(code, LOOK_FURTHER)
        print_fields([*((name, text) for name, text in fields if text), ("next", following)])
        return int(ExitCode.CLEAN)
    if code in CATALOGUE or code in TERMS:
        kind, (meaning, then) = ("finding", CATALOGUE[code]) if code in CATALOGUE else ("term", TERMS[code])
        command = NEXT_COMMANDS[code]
    elif code in {str(int(number)) for number in ExitCode}:
        kind, meaning = "exit status", EXIT_CODE_MEANINGS[ExitCode(int(code))]
        then, command = EXIT_CODE_ADVICE[ExitCode(int(code))]
    else:
        near = nearest_name(code, [*CAUSES, *CATALOGUE, *TERMS])
        hint = f"; the nearest is {near!r}" if near else ""
        raise click.BadParameter(
            f"no finding, cause, term or exit code {code!r}{hint}; `rmqctl explain` lists them", param_hint="CODE"
        )
    print_fields([(kind, code), ("meaning", meaning), ("then", then), ("next", command)])
    return int(ExitCode.CLEAN)
