"""The RPC with real brokers: every request of a slave, in both forms of the header."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqctl.errors import PeerError
from rmqctl.remoting.broker_requests import BrokerRequests
from rmqctl.remoting.client import RemotingClient, RequestRefused
from rmqctl.remoting.frame import SerializeType
from rmqctl.store.config.fastjson import fastjson_loads
from tests.real_store.cluster import LOOPBACK, Cluster

pytestmark = pytest.mark.interop

MESSAGES = 20


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3", "5.5.0"])
def test_a_real_broker_answers_every_request_in_both_forms(version: str, tmp_path: Path) -> None:
    with Cluster(version, tmp_path) as cluster:
        master = cluster.start("master", 0, "ASYNC_MASTER")
        puts = cluster.put(MESSAGES)
        assert {put.status for put in puts} == {"SEND_OK"}
        for form in SerializeType:
            with RemotingClient(LOOPBACK, master.port, serialize_type=form) as client:
                the_answers_are_the_brokers_own(BrokerRequests(client), master.ha_port, puts[-1].physical_offset)
                with pytest.raises(RequestRefused, match="request type 9999 not supported") as refused:
                    client.invoke(9999)
                assert refused.value.code == 3
                has_timers = BrokerRequests(client).timer_checkpoint() is not None
                assert has_timers == version.startswith("5.")
        for wrong in (master.ha_port, int(cluster.name_server.rpartition(":")[2])):
            with RemotingClient(LOOPBACK, wrong, timeout=1) as client, pytest.raises(PeerError):
                BrokerRequests(client).runtime_info()


def the_answers_are_the_brokers_own(broker: BrokerRequests, ha_port: int, last_offset: int) -> None:
    config, runtime = broker.broker_config(), broker.runtime_info()
    assert config["haListenPort"] == str(ha_port)
    assert config["brokerRole"] == "ASYNC_MASTER"
    assert config["mappedFileSizeCommitLog"] == "65536"
    assert runtime["commitLogMinOffset"] == "0"
    assert int(runtime["commitLogMaxOffset"]) > last_offset
    assert "orders" in fastjson_loads(broker.topics())["topicConfigTable"]
    assert fastjson_loads(broker.consumer_offsets())["offsetTable"] == {}
    assert "offsetTable" in fastjson_loads(broker.delay_offsets())
    assert fastjson_loads(broker.subscription_groups())["subscriptionGroupTable"]
    modes, metrics, checkpoint = broker.message_request_modes(), broker.timer_metrics(), broker.timer_checkpoint()
    if checkpoint is None:
        assert (modes, metrics) == (None, None)
    else:
        assert len(checkpoint) == 56
        assert modes is not None
        assert "messageRequestModeMap" in fastjson_loads(modes)
        assert metrics is not None
        assert "timingCount" in fastjson_loads(metrics)
