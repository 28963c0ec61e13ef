"""A name server for one slave: it answers each registration with a master of the test's choice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rmqctl.remoting.address import Address
from rmqctl.remoting.frame import RemotingCommand
from rmqctl.remoting.request_code import ResponseCode
from rmqctl.remoting.server import RemotingServer

REGISTER_BROKER, UNREGISTER_BROKER, QUERY_DATA_VERSION = 103, 104, 322


@contextmanager
def naming(ha_port: int) -> Iterator[str]:
    """The address of a name server that names the master with this HA port."""

    def register(_request: RemotingCommand, _peer: Address) -> RemotingCommand:
        return RemotingCommand(ResponseCode.SUCCESS, {"haServerAddr": f"127.0.0.1:{ha_port}"}, b"{}")

    def accept(_request: RemotingCommand, _peer: Address) -> RemotingCommand:
        return RemotingCommand(ResponseCode.SUCCESS, {"changed": "true"})

    handlers = {REGISTER_BROKER: register, UNREGISTER_BROKER: accept, QUERY_DATA_VERSION: accept}
    server = RemotingServer("127.0.0.1", 0, handlers)
    server.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        server.close()
