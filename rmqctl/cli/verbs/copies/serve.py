"""`rmqctl serve`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqctl.cli.output.render import print_line, print_line_of_text, remark, to_json
from rmqctl.cli.shared.option_class import kept, options_in
from rmqctl.cli.shared.options import POSITIVE, open_store, output_option, progress_option, store_argument
from rmqctl.cli.shared.parsed import Parsed
from rmqctl.cli.shared.verb import SCAN_VERB, Verb, flush_output
from rmqctl.errors import ExitCode

if TYPE_CHECKING:
    from rmqctl.operations.serve.access import Network
    from rmqctl.operations.serve.store_server import ServedSlave, StoreServer

PORT = click.IntRange(0, 65535)
LEAST_REMOTING_PORT = 3  # slaves also ask the port minus 2
LINE_SECONDS = 5.0  # between two lines if only offsets differ
LOOK_SECONDS = 0.2


def _checked_remoting_port(_: click.Context, option: click.Parameter, port: int) -> int:
    if 0 < port < LEAST_REMOTING_PORT:
        raise click.BadParameter(f"{port} is too small: serve also listens on this port minus 2", param=option)
    return port


def _network(text: str) -> Network:
    """Parse a network such as 10.1.0.0/16, or one IP address."""
    try:
        return ip_network(text)
    except ValueError as error:
        raise ValueError(f"{error}; give a network such as 10.1.0.0/16, or an IP address") from error


@dataclass(frozen=True)
class ServeOptions:
    """The options of `rmqctl serve`: addresses, ports, and when serve exits."""

    listen: str
    allow: tuple[Network, ...]
    until_synced: int | None
    ha_port: int
    remoting_port: int
    namesrv_port: int


@click.command(
    cls=Verb,
    exit_codes=(*SCAN_VERB, ExitCode.IN_USE),
    examples="""
        # reseed one slave of this machine; ends when the slave has everything
        rmqctl serve /backup/store --until-synced 1
        # two slaves of the network 10.1.2.0/24, with ports for a firewall
        rmqctl serve store --listen 10.1.2.3 --allow 10.1.2.0/24 --ha-port 10912 --remoting-port 10911 --until-synced 2
        # for a script: the ports, in the first line of stdout
        rmqctl serve store --until-synced 1 -o json | head -1 | jq .namesrv
    """,
)
@store_argument
@click.option(
    "--listen",
    default="127.0.0.1",
    metavar="HOST",
    help="The address of this machine to which slaves connect. `serve` listens on this address.",
)
@click.option(
    "--allow",
    type=Parsed("CIDR", _network),
    multiple=True,
    help="A network or an IP address from which slaves may connect. The option may be given several times. If --listen "
    "is not a loopback address, --allow is required.",
)
@click.option(
    "--until-synced",
    type=POSITIVE,
    metavar="N",
    help="Exit with 0 when N slaves have the whole log and the configuration. Without this option, `serve` runs until "
    "Ctrl-C.",
)
@click.option(
    "--ha-port",
    type=PORT,
    default=0,
    show_default=False,
    help="The port from which slaves copy the log (HA port).  [default: a free port]",
)
@click.option(
    "--remoting-port",
    type=PORT,
    callback=_checked_remoting_port,
    default=0,
    show_default=False,
    help="The port from which slaves copy the configuration. `serve` listens on a second port, too: this port "
    "minus 2.  [default: a free port]",
)
@click.option(
    "--namesrv-port",
    type=PORT,
    default=0,
    show_default=False,
    help="The port of serve's own name server.  [default: a free port]",
)
@output_option("table", "json")
@progress_option
@options_in(asked=ServeOptions)
def command(store: Path, output: str, asked: ServeOptions) -> int:
    """Send a store to real slaves, as their master does.

    Use `serve` to give a broken or a new slave the log and the configuration of a backup. `serve` does not change
    STORE. No broker may have STORE open.

    To connect a slave, edit the slave's broker.conf. Set namesrvAddr to the name server's address that `serve` prints,
    brokerRole to SLAVE, and brokerId to 1 or more. The slave's mappedFileSizeCommitLog must be the size of STORE's log
    files. Start the slave with an empty store, or with a store whose log is the beginning of STORE's log. A slave with
    an empty store gets the log from the log's first byte. The slave builds the consume queues and the index itself. The
    slave gets topics.json, subscriptionGroup.json, consumerOffset.json and delayOffset.json from STORE. A slave of 5.x
    also gets the files of the timer. A file from STORE replaces the same file of the slave. The slave keeps the offsets
    of groups that STORE does not have.

    A slave of 4.x asks for the configuration after some seconds, and a slave of 5.x after about 60 seconds. The
    progress line shows each slave, its offset, and whether the slave has asked for the configuration.

    With --until-synced, `serve` exits with 4 if `serve` cannot read a file in STORE/config. `serve` does not send an
    unreadable file to slaves.

    `serve` refuses a slave with another log, with a longer log, or with log files of another size. stderr reports the
    reason. Run `verify` first, because `serve` also sends damaged records.

    The protocol has no authentication and no encryption. Whoever can connect can read the whole store. By default,
    `serve` listens only on loopback. For an address other than loopback, --allow must name the networks that may
    connect.

    `serve` has no controller mode (5.x). `serve` serves slaves that run without a controller. For a broker with a
    controller, use `rmqctl replicate`. The copy that `replicate` writes has the log and epochFileCheckpoint, but no
    brokerIdentity.
    """
    from rmqctl.operations.serve.access import Access
    from rmqctl.operations.serve.store_server import Ports, StoreServer

    access = Access(asked.listen, asked.allow)
    ports = Ports(asked.ha_port, asked.remoting_port, asked.namesrv_port)
    opened = open_store(store)
    opened.path.check_plain_log()
    with StoreServer(opened, access, ports) as server:
        _print_listening(server, store, access.address, output)
        for problem in server.problems:
            remark(f"note: {problem}")
        return _serve(server, store, output, asked.until_synced)


def _print_listening(server: StoreServer, store: Path, address: str, output: str) -> None:
    ports = server.ports
    if output == "json":
        document = {
            "event": "listening",
            "store": str(store),
            "ha": ports.ha,
            "remoting": ports.remoting,
            "namesrv": ports.namesrv,
            "minPhyOffset": server.log.begin,
            "maxPhyOffset": server.log.end,
            "commitLogFileSize": server.log.file_size,
        }
        print_line("serve", document)
    else:
        print_line_of_text(f"listening on {address}: ha {ports.ha}, remoting {ports.remoting}, namesrv {ports.namesrv}")
        print_line_of_text(
            f"in the slave's broker.conf: namesrvAddr={address}:{ports.namesrv}, "
            f"mappedFileSizeCommitLog={server.log.file_size}"
        )
    flush_output()


def _serve(server: StoreServer, store: Path, output: str, until_synced: int | None) -> int:
    """Wait until `until_synced` slaves have all data. Return the exit code."""
    progress = ServeProgress(server)
    while True:
        slaves = server.slaves()
        progress.show(slaves)
        synced = [slave for slave in slaves if slave.has_log and slave.is_configured]
        if until_synced is not None and len(synced) >= until_synced:
            break
        time.sleep(LOOK_SECONDS)
    if output == "json":
        document = {"event": "synced", "store": str(store), "slaves": [slave_row(slave) for slave in synced]}
        print_line("serve", document)
    else:
        print_line_of_text(f"synced: {', '.join(slave.address for slave in synced)}")
    return int(ExitCode.PARTIAL if server.is_partial else ExitCode.CLEAN)


class ServeProgress:
    """Show each slave's offset on stderr.

    A line is written when a slave connects or disconnects, and when
    a slave has the whole log or the configuration. If only offsets change, a line is written at most once in 5 seconds.
    """

    def __init__(self, server: StoreServer) -> None:
        self._server = server
        self._mode = kept("progress_mode")
        self._shown: list[ServedSlave] = []
        self._shown_at = 0.0

    def show(self, slaves: list[ServedSlave]) -> None:
        """Show new remarks, and the slaves if their state has changed."""
        for text in self._server.notices.take():
            remark(text)
        is_due = time.monotonic() - self._shown_at >= LINE_SECONDS
        if self._mode == "none" or slaves == self._shown or not (is_due or _states(slaves) != _states(self._shown)):
            return
        self._shown, self._shown_at = slaves, time.monotonic()
        if self._mode == "json":
            remark(to_json({"progress": "serve", "slaves": [slave_row(slave) for slave in slaves]}))
        else:
            remark("; ".join(map(self._words, slaves)) or "no slave is connected")

    def _words(self, slave: ServedSlave) -> str:
        end = self._server.log.end
        log = "has the log" if slave.has_log else f"at {max(slave.max_offset, 0)} of {end}"
        has_configuration = "has the configuration" if slave.is_configured else "has not asked for the configuration"
        return f"{slave.address} {log}, {has_configuration}"


def slave_row(slave: ServedSlave) -> dict[str, Any]:
    """Return the JSON object that describes a slave."""
    return {
        "address": slave.address,
        "maxPhyOffset": slave.max_offset,
        "hasLog": slave.has_log,
        "hasConfiguration": slave.is_configured,
    }


def _states(slaves: list[ServedSlave]) -> list[tuple[str, bool, bool]]:
    return [(slave.address, slave.has_log, slave.is_configured) for slave in slaves]
