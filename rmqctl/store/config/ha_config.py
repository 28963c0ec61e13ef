"""The settings of broker.conf for replication (HA)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rmqctl.store.config.java_properties import JavaProperties


class HAConf(NamedTuple):
    """The settings for replication to slaves; sizes in bytes, times in ms.

    The defaults are the broker's. Beside a setting is its key in broker.conf.
    """

    sync_master: bool = False  # brokerRole=SYNC_MASTER
    listen_port: int = 10912  # haListenPort; 0: any free port
    transfer_batch_size: int = 32768  # haTransferBatchSize
    send_heartbeat_interval_ms: int = 5000  # haSendHeartbeatInterval
    housekeeping_interval_ms: int = 20_000  # haHousekeepingInterval
    slave_timeout_ms: int = 3000  # slaveTimeout
    sync_flush_timeout_ms: int = 5000  # syncFlushTimeout
    slave_fallbehind_max: int = 256 * 1024 * 1024  # haSlaveFallbehindMax (4.x), haMaxGapNotInSync (5.x)
    total_replicas: int = 1  # totalReplicas (5.x), with the master
    in_sync_replicas: int = 1  # inSyncReplicas (5.x), with the master
    min_in_sync_replicas: int = 1  # minInSyncReplicas (5.x), with the master
    auto_in_sync_replicas: bool = False  # enableAutoInSyncReplicas (5.x)
    slave_acting_master: bool = False  # enableSlaveActingMaster (5.x)


USUAL_HA = HAConf()


def ha_conf(said: JavaProperties) -> HAConf:
    """Return the settings of broker.conf for replication, or the defaults.

    Raises BadRequest if a number is not valid.
    """

    def number(usual: int, *names: str, least: int = 1) -> int:
        found = said.number(*names, least=least)
        return usual if found is None else found

    return HAConf(
        sync_master=said.text("brokerRole") == "SYNC_MASTER",
        listen_port=number(USUAL_HA.listen_port, "haListenPort", least=0),
        transfer_batch_size=number(USUAL_HA.transfer_batch_size, "haTransferBatchSize"),
        send_heartbeat_interval_ms=number(USUAL_HA.send_heartbeat_interval_ms, "haSendHeartbeatInterval"),
        housekeeping_interval_ms=number(USUAL_HA.housekeeping_interval_ms, "haHousekeepingInterval"),
        slave_timeout_ms=number(USUAL_HA.slave_timeout_ms, "slaveTimeout", least=0),
        sync_flush_timeout_ms=number(USUAL_HA.sync_flush_timeout_ms, "syncFlushTimeout", least=0),
        slave_fallbehind_max=number(USUAL_HA.slave_fallbehind_max, "haMaxGapNotInSync", "haSlaveFallbehindMax"),
        total_replicas=number(USUAL_HA.total_replicas, "totalReplicas"),
        in_sync_replicas=number(USUAL_HA.in_sync_replicas, "inSyncReplicas", least=0),
        min_in_sync_replicas=number(USUAL_HA.min_in_sync_replicas, "minInSyncReplicas", least=0),
        auto_in_sync_replicas=bool(said.flag("enableAutoInSyncReplicas")),
        slave_acting_master=bool(said.flag("enableSlaveActingMaster")),
    )
