"""The part of a name server that gives a slave the address of its master.

A slave of 5.x gets this address only from a name server, and ignores haMasterAddress. It registers at its start
(request 103), and again every few seconds. The answer names the HA address and the remoting address of the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.errors import BadRequest, PeerError
from rmqctl.operations.serve.registered_slaves import RegisteredSlave, RegisteredSlaves
from rmqctl.remoting.address import Address, parse_address
from rmqctl.remoting.broker_requests import BrokerRequests
from rmqctl.remoting.client import RemotingClient
from rmqctl.remoting.frame import RemotingCommand
from rmqctl.remoting.request_code import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.operations.serve.notices import Notices
    from rmqctl.remoting.server import Handler

MASTER_ID = "0"
NAME_SHOWN_MAX = 80  # characters
# the name of the setting since 4.5.2, and its name before 4.5.2
FILE_SIZE_KEYS = ("mappedFileSizeCommitLog", "mapedFileSizeCommitLog")


class NameServer:
    """Answers the registrations of slaves.

    `ha` and `remoting` are the addresses that the answers name. A slave whose log files do not have `file_size` bytes
    gets an error, because its log would be damaged; one with the right or an unknown file size is added to `slaves`.
    `accepts` says whether the server may connect to an IP address; a slave elsewhere is neither checked nor added.
    """

    def __init__(
        self,
        ha: Address,
        remoting: Address,
        file_size: int,
        slaves: RegisteredSlaves,
        accepts: Callable[[str], bool],
        notices: Notices,
    ) -> None:
        self._fields = {"haServerAddr": str(ha), "masterAddr": str(remoting)}
        self._file_size = file_size
        self._slaves = slaves
        self._accepts = accepts
        self._notices = notices

    @property
    def handlers(self) -> dict[int, Handler]:
        """Return the handler for each request code."""
        return {
            int(RequestCode.REGISTER_BROKER): self._register,
            int(RequestCode.UNREGISTER_BROKER): lambda *_: RemotingCommand(ResponseCode.SUCCESS),
            int(RequestCode.QUERY_DATA_VERSION): lambda *_: RemotingCommand(ResponseCode.SUCCESS, {"changed": "true"}),
        }

    def _register(self, request: RemotingCommand, peer: Address) -> RemotingCommand:
        fields = request.ext_fields
        name = f"{fields.get('brokerName', '')[:NAME_SHOWN_MAX]!r} at {fields.get('brokerAddr', '')[:NAME_SHOWN_MAX]!r}"
        try:
            slave = RegisteredSlave(
                peer.host, parse_address(fields.get("brokerAddr", "")), parse_address(fields.get("haServerAddr", ""))
            )
        except BadRequest as error:
            return self._refused(name, error.what)
        if fields.get("brokerId") == MASTER_ID:
            return self._refused(name, "the broker is a master; only slaves (brokerId 1 or more) are served")
        if self._accepts(slave.broker.host) and self._accepts(slave.ha.host):
            problem = self._problem(slave.broker, name)
            if problem:
                return self._refused(name, problem)
            self._slaves.add(slave)
        else:
            self._notices.add(f"note: --allow does not cover broker {name}: its file size and its log are not checked")
        return RemotingCommand(ResponseCode.SUCCESS, self._fields, b"{}")

    def _refused(self, name: str, problem: str) -> RemotingCommand:
        self._notices.add(f"refused: broker {name}: {problem}")
        return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=f"rmqctl serve: {problem}")

    def _problem(self, broker: Address, name: str) -> str:
        """Return why a slave cannot be served, or "".

        It is "" as well for a slave that does not answer.
        """
        try:
            with RemotingClient(broker.host, broker.port) as client:
                config = BrokerRequests(client).broker_config()
        except PeerError as error:
            self._notices.add(f"note: broker {name} does not say its file size ({error.what})")
            return ""
        sizes = {config[key] for key in FILE_SIZE_KEYS if key in config}
        if sizes and str(self._file_size) not in sizes:
            return (
                f"its mappedFileSizeCommitLog is {', '.join(sorted(sizes))}, but the served log has files of "
                f"{self._file_size} bytes: set it to {self._file_size} and empty the slave's store"
            )
        return ""
