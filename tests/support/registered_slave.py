"""What a real slave asks of its master besides the log: it registers, and takes the configuration."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rmqctl.remoting.broker_requests import BrokerRequests
from rmqctl.remoting.client import RemotingClient
from rmqctl.remoting.frame import RemotingCommand

LOOPBACK = "127.0.0.1"


def register(
    namesrv: int, address: str = "127.0.0.1:1", broker_id: int = 1, ha: str = "127.0.0.1:2"
) -> RemotingCommand:
    """Register a broker with a name server, as a slave does at its start."""
    fields = {"brokerName": "broker-a", "brokerAddr": address, "brokerId": str(broker_id), "haServerAddr": ha}
    with RemotingClient(LOOPBACK, namesrv) as client:
        return client.invoke(103, fields, b"{}")


class ConfiguredSlave:
    """The two connections of a slave to its master's ports P and P-2."""

    def __init__(self, port: int) -> None:
        self._main, self._vip = RemotingClient(LOOPBACK, port), RemotingClient(LOOPBACK, port - 2)
        self.main, self.vip = BrokerRequests(self._main), BrokerRequests(self._vip)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._main.close()
        self._vip.close()

    def take(self) -> dict[str, str]:
        """Take all that a slave of 4.x asks for, in its order: the text of each file."""
        return {
            "topics.json": self.vip.topics(),
            "consumerOffset.json": self.main.consumer_offsets(),
            "delayOffset.json": self.main.delay_offsets(),
            "subscriptionGroup.json": self.main.subscription_groups(),
        }
