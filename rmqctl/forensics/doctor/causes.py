"""The causes that `rmqctl doctor` knows, as a table.

A cause explains many findings: one lost file of the log gives a finding in each queue and in the index. The order of
the causes is their rank: by what their cure saves. A cause comes before its possible consequences, and one whose cure
another cure needs comes first: `mv` before everything that reads the log, topics.json before everything that rebuilds
queues. What is gone for good, and whose cure only tidies up, comes last.
"""

from __future__ import annotations

from typing import NamedTuple

CERTAIN, LIKELY, POSSIBLE = "certain", "likely", "possible"


class CauseKind(NamedTuple):
    """A kind of cause.

    In `summary`, {subjects} are the files or queues, {places} is the number of places and the first offset, and
    {detail} says why a broker does not start.
    """

    summary: str  # what happened
    means: str  # for producers and consumers
    confidence: str = CERTAIN  # how sure rmqctl is of the cause
    issue: str = ""  # the bug of the broker, if one leads to the cause or to its effect

    @property
    def meaning(self) -> str:
        """The summary with general words in place of file names."""
        words = self.summary.partition(": {")[0].format(subjects="the given files", places="")
        return f"{words}."


_SKIPPED = "Brokers skip missing messages silently: no consumer gets them, and no client sees an error."
_REPUT = "a broker of 5.3 that finds a queue behind the log after a clean shutdown can lose a message of it for good"

CAUSES: dict[str, CauseKind] = {
    "unreadable-part": CauseKind(
        "A part of the store cannot be read: {subjects}{places}",
        "Nothing can be said about this part. Correct the permissions, or copy the disk, before anything is changed.",
    ),
    "database-damaged": CauseKind(
        "The database of the queues is damaged: {subjects}",
        "A broker with queues in RocksDB does not start on it, or serves a part of the messages. The log has all that "
        "the queues need.",
    ),
    "change-unfinished": CauseKind(
        "A change by rmqctl was not finished",
        "The store is between two states. Do not start a broker before the change is undone.",
    ),
    "broker-conf-wrong": CauseKind(
        "broker.conf does not fit the files of the store: {subjects}",
        "The files are not what is wrong. With this broker.conf, a broker does not start, takes files of another "
        "length for none, or finds no message by its key.",
    ),
    "disk-full": CauseKind(
        "The disk is so full that brokers refuse messages: {subjects}",
        "Producers get CODE 14, `service not available now`. Consumers still read. A broker deletes the oldest log "
        "files by force when the disk is that full, unless cleanFileForciblyEnable is false.",
    ),
    "log-gone": CauseKind(
        "The commit log is missing: {subjects}{places}",
        "All messages are gone unless the log is elsewhere (storePathCommitLog in broker.conf). A broker that starts "
        "now deletes all queues.",
    ),
    "two-queue-types": CauseKind(
        "A topic has queues of two types, or of another type than topics.json says: {subjects}{places}",
        "No broker of 5.x loads this store. Producers and consumers of all topics wait until it does.",
    ),
    "log-file-renamed": CauseKind(
        "Files of the commit log have wrong names: {subjects}",
        "Each of them has its name with a suffix, or records with the offsets of another name. Consumers do not get "
        "their messages, or get others in their place, until the files have their names again. Queues and index may be "
        "whole.",
        LIKELY,
    ),
    "topics-lost": CauseKind(
        "Topics with messages are not in config/topics.json: {subjects}",
        "Producers and consumers of these topics get the error that the topic does not exist, unless the broker "
        "creates topics by itself.",
        LIKELY,
    ),
    "logs-joined": CauseKind(
        "Two brokers wrote a part of the log each: {subjects}{places}",
        "An old master that comes back as a slave keeps its own last messages, and gets the new master's behind them: "
        "some of the master's messages are missing here, and consumers of this copy miss messages, or get others in "
        "their place. The master's copy is right.",
        LIKELY,
    ),
    "log-file-length": CauseKind(
        "A file of the commit log does not have its full length: {subjects}{places}",
        "A file that is too short was cut, or only partly copied: the messages in its missing part are lost, and a "
        "whole copy of the file has them. A file that is too long lost nothing.",
    ),
    "log-file-gone": CauseKind(
        "Files of the commit log are missing in the middle: {subjects}",
        f"{_SKIPPED} Look for the files on a slave or in a copy before you repair.",
    ),
    "log-tail-gone": CauseKind(
        "The end of the commit log is missing: queues lead into {subjects}, and no message is there",
        "Producers were told that these messages are stored, and consumers may have got them; they are not in the log "
        "any more. A slave may have them.",
        LIKELY,
    ),
    "committed-gone": CauseKind(
        "The DLedger log lost entries that its group has agreed on: {subjects}{places}",
        "Producers were told that these messages are stored. The other members of the group have them, unless they "
        "lost them too: a group that elects this node without them loses them for good. Keep this node stopped until "
        "its log is copied again from a member.",
    ),
    "dledger-file-wrong": CauseKind(
        "A node of a DLedger group does not start with {subjects}",
        "The file is damaged, or does not belong there. The log may be whole.",
    ),
    "log-file-misplaced": CauseKind(
        "Records of the commit log lie at another place than they say: {subjects}{places}",
        "A file has a wrong name, is a copy of another one, or holds old bytes. Brokers serve what the queues lead to, "
        "and that may be another message.",
        LIKELY,
    ),
    "record-damaged": CauseKind(
        "The commit log is damaged in {subjects}{places}",
        "Consumers do not get the damaged messages, or get them with wrong content. A start that scans the damage and "
        "checks for it ends the log there: all messages after it are at risk.",
    ),
    "record-of-another-queue": CauseKind(
        "A record names another queue than the one that leads to it: {subjects}{places}",
        "Bits of its topic or queueId changed; no checksum covers them. Consumers of its queue still get the message, "
        "with a wrong topic or queueId.",
        LIKELY,
    ),
    "record-with-other-keys": CauseKind(
        "The index has another key for a record than the record itself: {subjects}{places}",
        "Bits of the record's keys probably changed; in most logs, no checksum covers them. Consumers get the message "
        "with a wrong key. The index may be the only place that still has the right key, as a hash.",
        LIKELY,
    ),
    "log-file-replaced": CauseKind(
        "A file of the commit log does not belong to this log: no queue agrees with {subjects}",
        "Consumers get other messages than those that were stored for them, or none. Look for the right file.",
        LIKELY,
    ),
    "queues-gone": CauseKind(
        "All consume queues are missing (consumequeue/)",
        "Consumers get nothing, although the log has the messages.",
    ),
    "queue-gone": CauseKind(
        "Consume queues are missing: {subjects}",
        "Consumers of these queues get nothing, although the log has the messages.",
    ),
    "queue-damaged": CauseKind(
        "Consume queues do not agree with the log: {subjects}{places}",
        "Consumers of these queues miss messages, get another message, or get a torn one. The log has the messages.",
    ),
    "queue-twins": CauseKind(
        "Two messages have the same queue offset in {subjects}{places}",
        "The broker gave one number twice. Dispatch places the first message: consumers never get the second, or "
        "lose it when the queue is built again. No repair and no start of a broker gives it a place.",
        CERTAIN,
        "RocketMQ's issues 2865 (batches) and 7511 (LMQ)",
    ),
    "queue-with-other-tags": CauseKind(
        "A consume queue has another tags code for a message than the message itself: {subjects}{places}",
        "Bits of the record's tags, or of the tags code in the queue, changed; in most logs, no checksum covers them. "
        "Consumers that filter by tags do not get the message; others get it with the tags of the record.",
        LIKELY,
    ),
    "queue-ahead": CauseKind(
        "A consume queue goes on after the end of the log: {subjects}{places}",
        "Its last units lead to no message. A consumer that reaches them waits, until a new message is stored at that "
        "place of the log and is delivered to the wrong queue.",
    ),
    "start-loses": CauseKind(
        "A start of the broker loses messages that are whole",
        "The broker rejects records that are good, and ends the log at the first of them: a setting of broker.conf, "
        "such as forceVerifyPropCRC, or a version that is older than the records. Change that before the next start.",
        LIKELY,
    ),
    "start-refused": CauseKind(
        "A broker cannot start with this store: {detail}",
        "Producers and consumers wait until the broker starts.",
        LIKELY,
        "RocketMQ's issues 9728 and 10108, if a queue's last file has no unit",
    ),
    "log-file-empty": CauseKind(
        "The last file of the commit log is empty: {subjects}{places}",
        "It holds no message. Brokers up to 5.1.2 do not start while it is there, or leave it out; later ones delete "
        "it.",
    ),
    "queue-file-empty": CauseKind(
        "The last file of a consume queue is empty: {subjects}{places}",
        "The queue misses no message. Brokers up to 5.1.2 do not start while the file is there, or leave it out; later "
        "ones delete it.",
    ),
    "messages-rejected": CauseKind(
        "Clients reject messages of the commit log: {subjects}{places}",
        "Brokers serve these messages, and Java clients reject them together with all messages of the same pull. "
        "Consumers may stop here.",
    ),
    "record-misnumbered": CauseKind(
        "Records have another queue offset than their place in the queue: {subjects}{places}",
        "The queue leads to all its messages, in order. Consumers see a wrong offset in these.",
    ),
    "fields-changed": CauseKind(
        "A bit of a record changed where no checksum covers it: {subjects}{places}",
        "Brokers and `verify` take the record as it is, and consumers get it with a wrong time, host, count or flag. "
        "The records beside it, its unit and its index entries show what was there.",
        LIKELY,
    ),
    "log-tail-unclean": CauseKind(
        "There are bytes after the end of the commit log: {subjects}{places}",
        "Old records there can become part of the log again when new messages are stored.",
        CERTAIN,
        "RocketMQ's issue 10666",
    ),
    "queue-behind": CauseKind(
        "Consume queues end before the log does: {subjects}{places}",
        "Consumers do not get the last messages of these queues, although the log has them.",
        CERTAIN,
        _REPUT,
    ),
    "queue-database-behind": CauseKind(
        "The queues in RocksDB are not as those in files: {subjects}{detail}",
        "With combineCQPreferCQType=default, consumers notice nothing: brokers then read the files. With "
        "defaultRocksDB, a start may fail, or serve a part of the messages, which no later start mends.",
    ),
    "index-gone": CauseKind(
        "The index is missing (index/)",
        "Look-ups by key find nothing. Producers and consumers notice nothing.",
    ),
    "index-damaged": CauseKind(
        "The index does not agree with the log: {subjects}{places}",
        "Look-ups by key miss messages. Producers and consumers notice nothing.",
    ),
    "index-database-wrong": CauseKind(
        "The index in RocksDB does not agree with the log: {subjects}{places}",
        "Look-ups by key miss messages of a broker with indexFileReadEnable=false. Producers and consumers notice "
        "nothing.",
    ),
    "database-rows-lost": CauseKind(
        "A log of RocksDB is damaged: {subjects}{places}",
        "A broker starts without the rows behind the damage, and says nothing. They are nowhere else: copy the folder "
        "before any start.",
    ),
    "half-rows-wrong": CauseKind(
        "Half messages in RocksDB are not those of the log: {subjects}{places}",
        "The broker drops them: it asks no producer whether to commit, and consumers never get these messages.",
    ),
    "config-damaged": CauseKind(
        "A file of config/ cannot be loaded: {subjects}{places}",
        "The broker takes the .bak, which may be older. Without a valid .bak it does not start, or starts with an "
        "empty file: topics, groups or offsets are missing then. If the file has only `null`, the broker does not read "
        "the .bak, and starts with an empty file. Brokers up to 5.3 do the same for `[]` and, in most files, for "
        "blanks.",
    ),
    "config-database-damaged": CauseKind(
        "A database of the broker's configuration is damaged: {subjects}",
        "The broker does not start. Nothing else in the store has what is lost of its topics, groups or offsets.",
    ),
    "config-emptied": CauseKind(
        "A file of config/ lost all its entries: {subjects}{places}",
        "The broker loads the empty file, and not the .bak. Clients get the error that a topic does not exist, or "
        "consumers begin again as new groups do: they read messages again, or skip those that wait.",
        LIKELY,
    ),
    "config-lost": CauseKind(
        "A file of config/ and its .bak are gone: {subjects}{places}",
        "The broker starts with an empty file. Without topics.json, clients get the error that a topic does not exist. "
        "Without consumerOffset.json, consumers begin again as new groups do: they read messages again, or skip those "
        "that wait.",
        LIKELY,
    ),
    "offsets-unread": CauseKind(
        "The broker does not read the offsets that groups have: {subjects}",
        "With enableLmq, a broker of 4.9.3 or later reads only config/lmqConsumerOffset.json. Groups without an offset "
        "there begin again as new groups do: they read messages again, or skip those that wait. Copy the offsets "
        "before the next start.",
    ),
    "config-shrunk": CauseKind(
        "A file of config/ has fewer entries than its .bak: {subjects}{places}",
        "Entries that the store still uses are missing. If nobody deleted them, consumers may read messages again, or "
        "skip those that wait.",
        POSSIBLE,
    ),
    "config-rolled-back": CauseKind(
        "A file of config/ is older than its own .bak: {subjects}{places}",
        "Topics, groups or offsets that were added later are missing. Consumers may read messages again.",
        POSSIBLE,
    ),
    "group-went-back": CauseKind(
        "The offset of a consumer group went back: {subjects}{detail}",
        "The group gets messages again that it had before. An operator may have asked for that; otherwise, the file of "
        "the offsets is old, or from another store.",
        POSSIBLE,
    ),
    "queue-unread": CauseKind(
        "No consumer can read queues that have messages: {subjects}{detail}",
        "topics.json forbids it: the topic's perm lacks the bit for reading, or the topic has too few read queues. "
        "Consumers get an error, or are not told of the queue. Producers may still fill it. Someone may have asked for "
        "that; the broker deletes the messages when they expire, read or not.",
    ),
    "checkpoint-wrong": CauseKind(
        "The checkpoint is wrong{places}",
        "Producers and consumers notice nothing. A start after a crash takes longer, and rebuilds the newest index "
        "file; with a checkpoint of the future it may begin too late.",
    ),
    "timer-ahead": CauseKind(
        "The timer has read further than its queue goes: {subjects}{places}",
        "The log was cut after the timer had read it. Delayed messages that were cut are not delivered, and the broker "
        "tries the timer's entries for them again for ever.",
        LIKELY,
        "RocketMQ's issue 10668",
    ),
    "controller-files-wrong": CauseKind(
        "A file of the controller mode is wrong: {subjects}{places}",
        "A broker with a controller compares its log with its master's by these files. A broker without a controller "
        "does not read them.",
    ),
    "foreign-files": CauseKind(
        "Files that RocketMQ does not create lie in the store: {subjects}{places}",
        "In commitlog/, such a file can keep a broker from starting, or make a start cut the log.",
    ),
    "journal-damaged": CauseKind(
        "A journal of rmqctl is damaged: {subjects}{places}",
        "Producers and consumers notice nothing. rmqctl changes nothing in this store, and cannot undo that change.",
    ),
    "compaction-refused": CauseKind(
        "The files of a compacted topic do not belong together: {subjects}{places}",
        "No broker of 5.1 or later starts on this store, unless enableCompaction is false.",
    ),
    "delay-ahead": CauseKind(
        "The offset of a delay level is after the end of its queue: {subjects}{places}",
        "A broker of 4.9.2 or later sets the level to the end of its queue when it starts, and never delivers the "
        "messages that wait there. An older one delivers nothing of this level until the queue reaches the offset. Set "
        "the offset before any start.",
        CERTAIN,
        "RocketMQ's issue 1869",
    ),
    "timer-gone": CauseKind(
        "Files of the timer are missing, and nothing leads to the messages that wait: {subjects}{detail}",
        "A broker never delivers these messages: it begins with new files, and config/timercheck says that it has read "
        "their queue. The log still has them.",
        CERTAIN,
        "RocketMQ's issue 9735",
    ),
    "timer-stalled": CauseKind(
        "The timer does not lead to messages that wait: {subjects}{detail}",
        "A broker never delivers these messages. The log still has them.",
    ),
    "timer-refused": CauseKind(
        "A file of the timer has another length than a broker needs: {subjects}{places}",
        "No broker of 5.x starts on this store, unless timerWheelEnable is false.",
    ),
    "timer-behind": CauseKind(
        "The next start delivers timer messages a second time: {subjects}{detail}",
        "The broker died, or its timercheck is older than the log. Consumers get these messages again.",
    ),
    "compaction-unloaded": CauseKind(
        "A broker does not load a queue of a compacted topic: {subjects}{places}",
        "Brokers start. Consumers get no message of this queue, not even new ones, and no client sees an error.",
    ),
    "compaction-damaged": CauseKind(
        "Messages of a compacted topic are damaged: {subjects}{places}",
        "Consumers do not get these messages, or get them changed, and may miss those that follow. The next compaction "
        "can drop the rest of the file, and then serves older values of the keys. What the commit log no longer has "
        "is lost.",
    ),
    "compaction-gone": CauseKind(
        "The newest messages of keys are missing in compaction/: {subjects}{places}",
        "Consumers do not get these messages, and no start copies them. The log still has them. If the topic was "
        "compacted only later, or enableCompaction is false (give --broker-conf), nothing is wrong.",
        LIKELY,
    ),
    "compaction-ahead": CauseKind(
        "A compacted queue is ahead of the log: {subjects}",
        "Brokers store the next messages up to there, and no consumer ever gets them.",
    ),
    "compaction-stalled": CauseKind(
        "position-checkpoint is wrong: {subjects}",
        "No message is lost. A broker compacts all again, or, with a position that is ahead, compacts nothing until "
        "the queue has reached it.",
    ),
    "delay-stalled": CauseKind(
        "A delay level stands still: messages were due long before the log ends: {subjects}{places}",
        "Consumers wait for these delayed messages or retries. A start of the broker delivers them, unless the first "
        "one cannot be delivered: then the level stands still again.",
        LIKELY,
    ),
    "half-stalled": CauseKind(
        "Half messages have no end, more than a day later: {subjects}{places}",
        "Consumers never got these messages, and their producers may believe that they are sent. The broker's check "
        "stood still, or no producer of the group answers it. A broker drops half messages that expire.",
        LIKELY,
    ),
    "group-ahead": CauseKind(
        "The offset of a consumer group is after the end of its queue: {subjects}{places}",
        "When a consumer of the group pulls, the broker sends the consumer to the end of the queue. A broker up to "
        "4.9.3 sends the consumer to offset 0 if the queue begins at 0, and the group reads all messages of the queue "
        "again. The group may skip messages that are stored before the pull.",
    ),
    "broker-runs": CauseKind(
        "A broker, or another rmqctl, has the store open: {detail}",
        "The store changes while doctor reads it, and no repair is possible. Stop the broker first, then run doctor "
        "again: what was only not written yet is gone then.",
    ),
    "clock-went-back": CauseKind(
        "The clock of the broker went back: {subjects}{places}",
        "Store times fall along the log, and nothing puts them right. Consumers get every message. Brokers search by "
        "time as if times only rose: consumers that begin at a time, or whose offsets are reset to one, can begin at a "
        "wrong message, and look-ups by key within a time can miss some. Files expire by the clock, too: with dates of "
        "the future, they stay. After a crash, a recovery that begins by the checkpoint can begin too late.",
        LIKELY,
    ),
    "log-head-gone": CauseKind(
        "The first files of the commit log are missing: {subjects}",
        "Consumers cannot read the messages of these files. Look for the files on a slave or in a copy before you "
        "repair. If someone deleted them on purpose, nothing else is wrong.",
        LIKELY,
    ),
    "copied-live": CauseKind(
        "The store is a copy that was made while a broker wrote to it",
        "Its files are not of one moment: log, queues and index can end at different messages. The original has what "
        "is missing here. Copy it with the broker stopped, or repair this copy and go without.",
        LIKELY,
    ),
    "broker-died": CauseKind(
        "The broker was not shut down cleanly: `abort` is there, and no broker holds the store",
        "The next start reads the log again from the checkpoint on, and cuts it at the first record that is not whole.",
    ),
}
RANK = {code: rank for rank, code in enumerate(CAUSES)}
