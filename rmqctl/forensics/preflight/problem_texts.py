"""The meaning of the problems that `rmqctl preflight` finds."""

from __future__ import annotations

from rmqctl.forensics.catalogue.explanation import Explanation

_CONVERT = "`rmqctl preflight STORE --to VERSION --convert NEW` writes a store that this broker reads; STORE stays."
_FIRST = "Let the consumers finish on the old broker first."

OF_PREFLIGHT = {
    "target-refuses": Explanation(
        "A broker of that version does not load the store, for example because of a file size, or of damage.",
        f"If other file sizes of broker.conf are the reason: {_CONVERT} Otherwise `rmqctl doctor STORE` names the "
        "cause.",
    ),
    "target-hangs": Explanation(
        "The start of a broker of that version waits for bytes that no file of the log has.",
        "`rmqctl recover STORE --broker-version VERSION --dry-run` shows what ends the wait.",
    ),
    "target-loses": Explanation(
        "The start of a broker of that version ends the log before messages that are in it, and drops them.",
        "`rmqctl recover STORE --broker-version VERSION --dry-run` shows the place, and what a repair would keep.",
    ),
    "records-unknown": Explanation(
        "Some messages are no records for that version: V2 records, for topics longer than 127 bytes (5.1.0 and "
        "later), IPv6 hosts (4.6.0 and later), or a delay level that is no number. Its recovery ends the log at the "
        "first one that it reads, and drops what follows.",
        "No broker of that version can have these messages. Export them, and start from a copy without them.",
    ),
    "queues-unread": Explanation(
        "The log has messages of these queues, or consumers get them now, and would not after the start: the queues "
        "lack units, are cut, or are not filled again.",
        f"{_CONVERT} If NEW lacks them, too, broker.conf does: a start of 5.4 and later fills queues in RocksDB from "
        "the last 10 log files, or as many as commitLogRecoverMaxNum says, and light queues need enableLmq=true and "
        "enableMultiDispatch=true.",
    ),
    "batch-queues-unread": Explanation(
        "The queues in batchconsumequeue/ are for topics with queue.type=BatchCQ (5.0 and later). An older version "
        "neither reads them, nor splits their records into messages.",
        _FIRST,
    ),
    "queue-database-unread": Explanation(
        "The queues are in RocksDB (storeType=defaultRocksDB, 5.2 and later), and this broker reads files. After a "
        "clean stop, it may fill none of them from the log.",
        _CONVERT,
    ),
    "config-database-unread": Explanation(
        "Topics, groups and offsets are in a database of config/ that this version does not read: its files are stale "
        "or missing, so groups begin anew.",
        _CONVERT,
    ),
    "dledger-unread": Explanation(
        "The log is a DLedger group's, in dledger-ID/data, and this broker reads only commitlog/. With no log there, "
        "its start deletes all queues.",
        _CONVERT,
    ),
    "timers-unread": Explanation(
        "Messages wait in rmq_sys_wheel_timer for their time (5.0 and later). 4.x has no timer, and never delivers "
        "them.",
        "`rmqctl queue STORE --timer` lists them. Wait until they are due, or send them again.",
    ),
    "pop-unread": Explanation(
        "Groups popped messages (5.0 and later) and did not acknowledge them. Only a broker that reads the checkpoints "
        "of POP delivers them again; since 5.3.2 they can be in kvStore/.",
        f"{_FIRST} `rmqctl lag STORE` counts them.",
    ),
    "half-messages-unread": Explanation(
        "Half messages of transactions are in rocksdbstore/ (transRocksDBEnable, 5.4 and later), which this version "
        "does not read: it asks no producer whether to commit them.",
        "`rmqctl trace STORE --unresolved` lists them. Let the producers end their transactions first.",
    ),
    "compaction-unread": Explanation(
        "compaction/ has messages of compacted topics that the log no longer has. Versions before 5.1 do not read it.",
        "`rmqctl dump STORE --compaction` prints them.",
    ),
    "tiered-unread": Explanation(
        "Messages that the log no longer has are in tiered storage. Versions before 5.1, and brokers without "
        "messageStorePlugIn in broker.conf, do not read it.",
        _FIRST,
    ),
    "static-topics-unread": Explanation(
        "Clients see the queues of static topics (5.0 and later) under the numbers and offsets of "
        "config/topicQueueMapping.json. 4.x does not read it: clients get the queues as they lie, under other numbers "
        "and offsets, and groups begin at wrong places.",
        f"{_FIRST} `rmqctl queue STORE` shows both numbers.",
    ),
    "offsets-unread": Explanation(
        "Offsets of groups are in lmqConsumerOffset.json (enableLmq, 4.9.3 and later), which this version does not "
        "read.",
        f"{_FIRST} `rmqctl lag STORE` shows the offsets.",
    ),
    "option-unknown": Explanation(
        "broker.conf has a name that this version does not know. It ignores the line without a warning, and takes its "
        "default.",
        "Look for another name in that version, or for a misspelling, and take the line out.",
    ),
}
