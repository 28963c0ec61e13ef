"""The settings of broker.conf for writing to a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rmqctl.store.config.java_properties import JavaProperties


class WritingConf(NamedTuple):
    """The settings for writing to a store.

    Sizes are in bytes, times in ms, and pages have 4 KiB. The defaults are the broker's. Beside a setting is its key in
    broker.conf.
    """

    max_message_size: int = 4 * 1024 * 1024  # maxMessageSize
    property_crc: bool = False  # enabledAppendPropCRC
    multi_dispatch: bool | None = None  # enableMultiDispatch and enableLmq; None: neither is set
    os_page_cache_busy_ms: int = 1000  # osPageCacheBusyTimeOutMills
    pool_size: int = 0  # transientStorePoolSize, with transientStorePoolEnable and asynchronous flush
    warm_files: bool = False  # warmMapedFileEnable
    sync_flush: bool = False  # flushDiskType=SYNC_FLUSH
    flush_interval_ms: int = 500  # flushIntervalCommitLog
    flush_thorough_ms: int = 10_000  # flushCommitLogThoroughInterval
    flush_least_pages: int = 4  # flushCommitLogLeastPages
    commit_interval_ms: int = 200  # commitIntervalCommitLog
    commit_thorough_ms: int = 200  # commitCommitLogThoroughInterval
    commit_least_pages: int = 4  # commitCommitLogLeastPages


USUAL = WritingConf()
POOL_SIZE = 5


def writing_conf(said: JavaProperties) -> WritingConf:
    """Return the settings of broker.conf for writing, or the defaults.

    Raises BadRequest if a number is not valid.
    """

    def number(name: str, usual: int) -> int:
        found = said.number(name, least=0)
        return usual if found is None else found

    sync_flush = said.text("flushDiskType") == "SYNC_FLUSH"
    light = {said.flag("enableMultiDispatch"), said.flag("enableLmq")}
    pooled = (
        said.flag("transientStorePoolEnable") and not sync_flush
    )  # MessageStoreConfig.isTransientStorePoolEnable of 4.x
    return WritingConf(
        max_message_size=number("maxMessageSize", USUAL.max_message_size),
        property_crc=bool(said.flag("enabledAppendPropCRC")),
        multi_dispatch=None if light == {None} else light == {True},
        os_page_cache_busy_ms=number("osPageCacheBusyTimeOutMills", USUAL.os_page_cache_busy_ms),
        pool_size=number("transientStorePoolSize", POOL_SIZE) if pooled else 0,
        warm_files=bool(said.flag("warmMapedFileEnable")),
        sync_flush=sync_flush,
        flush_interval_ms=number("flushIntervalCommitLog", USUAL.flush_interval_ms),
        flush_thorough_ms=number("flushCommitLogThoroughInterval", USUAL.flush_thorough_ms),
        flush_least_pages=number("flushCommitLogLeastPages", USUAL.flush_least_pages),
        commit_interval_ms=number("commitIntervalCommitLog", USUAL.commit_interval_ms),
        commit_thorough_ms=number("commitCommitLogThoroughInterval", USUAL.commit_thorough_ms),
        commit_least_pages=number("commitCommitLogLeastPages", USUAL.commit_least_pages),
    )
