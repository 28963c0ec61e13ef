"""A finding: one thing wrong with a store, where, and what it means.

The catalogue explains every code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rmqctl.format.message import Damage


FINDING_KEYS = (
    "code",
    "path",
    "physicalOffset",
    "detail",
    "fileOffset",
    "size",
    "topic",
    "queueId",
    "queueOffset",
    "msgId",
    "count",
)


@dataclass
class Finding:
    """One thing wrong with a store.

    Offsets and sizes are in bytes, `queue_offset` in units; None if a field does not apply. `file_offset` is the place
    in `path`. `count` is the number of neighbours (units, messages) that the finding stands for.
    """

    code: str
    path: str
    physical_offset: int | None
    detail: str
    file_offset: int | None = None
    size: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    msg_id: str | None = None
    count: int = 1

    def to_json(self) -> dict[str, Any]:
        """Return the finding with RocketMQ's names.

        Fields that do not apply are left out, except four keys that are always there.
        """
        optional = {
            "fileOffset": self.file_offset,
            "size": self.size,
            "topic": self.topic,
            "queueId": self.queue_id,
            "queueOffset": self.queue_offset,
            "msgId": self.msg_id,
            "count": self.count if self.count > 1 else None,
        }
        always = {"code": self.code, "path": self.path, "physicalOffset": self.physical_offset, "detail": self.detail}
        return always | {key: value for key, value in optional.items() if value is not None}


def of_damage(damage: Damage, path: str, file_from_offset: int) -> Finding:
    """Return the finding for a damage of the commit log file `path`.

    The file begins at physical offset `file_from_offset`.
    """
    finding = Finding(damage.code, damage.path or path, damage.physical_offset, damage.detail, size=damage.size or None)
    finding.file_offset = max(damage.physical_offset - file_from_offset, 0)
    if damage.message is not None:
        finding.topic = damage.message.topic
        finding.queue_id = damage.message.queue_id
        finding.queue_offset = damage.message.queue_offset
        finding.msg_id = damage.message.msg_id
    return finding


class Explanation(NamedTuple):
    """What a code means, and what to do."""

    meaning: str
    then: str


_RESTART = "A broker that scans this place at its start ends the log here and drops everything after it."
_CLIENT = (
    "Brokers serve the message, but Java clients reject it, and with it all that follow it in the same pull: "
    "consumers may hang here or "
    "skip messages. Once the group has consumed up to the message, set its offset to the next one; a slave's copy may "
    "be intact."
)
_REBUILD = "The log is whole: the queues can be built again from it."
_INDEX = "Only look-ups by key suffer; the index can be built again from the log."

CATALOGUE: dict[str, Explanation] = {
    "bad-magic": Explanation(
        "RocketMQ does not write this magic code: a record was overwritten, or no record starts here.", _RESTART
    ),
    "bad-size": Explanation("TOTALSIZE is too small for a record, or larger than what is left of the file.", _RESTART),
    "bad-length": Explanation("The lengths of body, topic and properties do not add up to TOTALSIZE.", _RESTART),
    "bad-body-crc": Explanation(
        "The body is not what its producer sent: its CRC-32 differs from BODYCRC. Where one flipped bit explains it, "
        "the detail names it.",
        _RESTART + " With an empty body brokers do not look.",
    ),
    "bad-property-crc": Explanation(
        "The record's CRC-32 (property __CRC32#, 5.2 and later) differs: some byte of the record changed.",
        "Brokers check this only with forceVerifyPropCRC. Compare the message with the producer's copy, or a slave's.",
    ),
    "bad-physical-offset": Explanation(
        "The record says that it belongs elsewhere: stale bytes of an earlier life of the file, or a file under a "
        "wrong name.",
        "No broker checks this: brokers serve the record. Compare the name of the file with its neighbours.",
    ),
    "bad-port": Explanation(
        "A host of the record has a port outside 0 to 65535: a bit of the record changed; no checksum covers this "
        "field.",
        _CLIENT,
    ),
    "bad-compression": Explanation(
        "SYSFLAG says that the body is compressed, but the body does not begin as its compression type (zlib, lz4, "
        "zstd) does, or the "
        "type is unknown: a bit of SYSFLAG changed; BODYCRC does not cover it.",
        _CLIENT,
    ),
    "bad-queue-offset": Explanation(
        "The QUEUEOFFSET of one record is wrong: its queue leads to it from another place, and the records before and "
        "after it agree "
        "with the queue. A bit of the record changed; no checksum covers this field.",
        "Brokers deliver the message at its place in the queue and never look at this field, but consumers see the "
        "wrong offset. The "
        "queue is right: `recover` and `rebuild` keep the message at its place, and leave the record as it is.",
    ),
    "bad-blank-size": Explanation(
        "A blank record, which ends a file, has a wrong size: the blank is damaged, or was written over a record.",
        "4.x treats the blank as the end of the file; 5.3 ends the log here if the size is too large.",
    ),
    "bad-entry": Explanation(
        "The header of 48 bytes that DLedger puts before a record is damaged, or it does not continue where the entry "
        "before it ended. "
        "The record after the header is still read if it is whole.",
        "A broker that scans this place at its start ends its log here, and gets what follows from the other members "
        "of its group, as "
        "far as they have it.",
    ),
    "no-blank": Explanation(
        "A file ends without a blank record although the log goes on: it was cut, or its end was never written.",
        _RESTART,
    ),
    "torn-properties": Explanation(
        "The last byte of PROPERTIES is zero: the record was not written to its end (a torn write leaves zeros), or "
        "it was zeroed.",
        "No broker checks this: it would serve the message without its last properties. Compare it with its "
        "producer's or a slave's.",
    ),
    "hole": Explanation(
        "Zeros where a record should be, whole records after: pages that never reached the disk, a zeroed sector, or "
        "a log that was cut "
        "here before and still has stale records after its end (then they are older than those before).",
        _RESTART,
    ),
    "bytes-behind-end": Explanation(
        "The log ends, but the bytes after its end are not zero: a torn write, or what a truncation left.",
        "Stale records there can come back to life (RocketMQ's issue 10666); truncate the log's tail.",
    ),
    "file-gap": Explanation(
        "Files of the sequence are missing.",
        "Brokers start all the same, and consumers silently get none of the messages in there; 4.x may hang at its "
        "start when its queues "
        "are gone, too. Look for the file; `recover --keep-going` puts a file full of placeholders in its place.",
    ),
    "file-overlap": Explanation(
        "Two files claim the same offsets.",
        "Keep the right file and move the other away: a broker reads both, in the order of their names.",
    ),
    "file-length": Explanation(
        "The file is not as long as the others: it was cut, or only partly copied.", "No broker loads such a store."
    ),
    "queue-in-both-folders": Explanation(
        "A topic has queues in consumequeue/ and in batchconsumequeue/: the same queue in both, or different ones. "
        "All queues of a topic "
        "have the type that topics.json names.",
        "No broker of 5.x starts, and rmqctl changes nothing in such a store. Move away the topic's folder of the "
        "wrong type: the one in "
        "batchconsumequeue/, unless topics.json has queue.type=BatchCQ for the topic. Then `rebuild` makes the other "
        "queues again.",
    ),
    "bad-journal": Explanation(
        "A journal in STORE/.rmqctl, from which `undo` takes a change back, is not as rmqctl writes it. It is "
        "damaged, or it was forged to "
        "have files changed that rmqctl never changes.",
        "No verb follows it, and those that change the store refuse to run (exit 4). `rmqctl undo STORE --list` shows "
        "which change it is: "
        "`--drop-damaged NAME` forgets one that came to its end; otherwise look at its folder, and take it away by "
        "hand. Where the log "
        "lies elsewhere, give --broker-conf with the file that names its folders.",
    ),
    "foreign-file": Explanation(
        "A file or folder that RocketMQ does not create.",
        "In commitlog/ such a file prevents a 4.x broker from starting: move it away.",
    ),
    "link-not-followed": Explanation(
        "A symbolic link leads out of the store and was not followed.", "If the link is intended, use --follow-links."
    ),
    "unreadable": Explanation(
        "A file or folder cannot be read, or became shorter during the read.",
        "The answer is incomplete: correct the permissions or copy the disk, then try again.",
    ),
    "missing-unit": Explanation("Messages in the log have no unit in their queue: consumers never see them.", _REBUILD),
    "unit-mismatch": Explanation(
        "A unit does not point at the message with its topic, queue and queue offset.", _REBUILD
    ),
    "unit-size": Explanation(
        "A unit does not have the size of its record: a consumer receives a torn message.", _REBUILD
    ),
    "unit-tags-code": Explanation(
        "The tags code of a unit is not that of its message: tag filters drop the message, or its delay is wrong.",
        _REBUILD,
    ),
    "unit-order": Explanation("Physical offsets in a queue do not ascend.", _REBUILD),
    "unit-hole": Explanation("An unused unit between used ones: a broker may end the queue here.", _REBUILD),
    "unit-behind-end": Explanation("Bytes after a queue's end that are no unit.", _REBUILD),
    "dangling-unit": Explanation(
        "Units point after the end of the log: their messages, or the last file of the log, were removed.",
        "A restart cuts them off.",
    ),
    "unit-lost-message": Explanation(
        "Units point at damaged bytes of the log: these messages are lost.",
        "The finding for the log at that offset says why.",
    ),
    "ext-missing": Explanation("A unit's address leads to no unit of consumequeue_ext.", _REBUILD),
    "index-length": Explanation("The index file is not as long as the others.", _INDEX),
    "index-header": Explanation("The header of an index file contradicts its content.", _INDEX),
    "index-chain": Explanation(
        "An entry's predecessor, or a slot, is not what the entries before say: look-ups miss keys.", _INDEX
    ),
    "index-order": Explanation("Entries of the index point back in the log.", _INDEX),
    "index-time": Explanation(
        "The time of an entry is not that of its message: look-ups with a time range miss the message.", _INDEX
    ),
    "index-dangling": Explanation("Entries lead to no message of the log with that key.", _INDEX),
    "index-missing": Explanation(
        "Messages with keys are not in the index: look-ups by key miss them.",
        _INDEX + " Normal where messageIndexEnable=false (give --broker-conf).",
    ),
    "log-start-missing": Explanation(
        "Queues point to messages before the log's first file, and these are too young to have expired: the file was "
        "lost, "
        "or deleted by hand or for want of disk.",
        "Look for the file. If it was deleted on purpose, there is nothing to do. What `rmqctl clean` deleted is no "
        "finding, as long as "
        "its receipts are in the store (rmqctl-clean.log). The receipts came with the store: `verify "
        "--ignore-receipts` ignores them. "
        "The retention is fileReservedTime of --broker-conf, or 72 h.",
    ),
    "log-missing": Explanation(
        "No file of the commit log, but queues.",
        "Look for the commit log (storePathCommitLog in broker.conf): a broker would destroy the queues.",
    ),
    "abort": Explanation(
        "`abort` exists and no broker on this host has the store open: the store was not shut down cleanly.",
        "The next start of a broker runs the abnormal recovery, and a shutdown in order takes `abort` away. Where "
        "verify finds nothing "
        "else, and no broker runs anywhere on the store, deleting the file says that it is whole.",
    ),
    "checkpoint-missing": Explanation(
        "There is no checkpoint, or it is too short.",
        "An abnormal recovery then scans the whole log and drops the open index file.",
    ),
    "checkpoint-length": Explanation(
        "The checkpoint does not have 4096 bytes.", "Brokers map 4096 bytes: the file was cut, or overwritten."
    ),
    "checkpoint-behind": Explanation(
        "The checkpoint is zero or older than the last message, although the store was shut down cleanly.",
        "Safe but slow: an abnormal recovery scans more of the log, or all of it, and drops the open index file.",
    ),
    "checkpoint-ahead": Explanation(
        "The checkpoint is later than the last message, or negative.",
        "An abnormal recovery may begin too late and miss queue units.",
    ),
    "config-invalid": Explanation(
        "A file of config/ is not valid JSON, or has a value of a type that a broker rejects.",
        "A broker deletes the file and reads its .bak; when that is bad, too, it does not start or starts with an "
        "empty configuration.",
    ),
    "offset-beyond-queue": Explanation(
        "A group's offset, or a delay level's, is after the end of its queue: messages were lost, or the queue was "
        "cut.",
        "The group would skip new messages up to that offset: reset the offset of the group.",
    ),
}

TERMS: dict[str, Explanation] = {
    "placeholder": Explanation(
        "A message that `recover --keep-going` wrote in place of one that is damaged or missing, of its size and in "
        "its place in "
        "the queue. Its property RMQCTL_DAMAGED has the finding (there is none where there is no room for it); its "
        "body is the "
        "message's own where that is whole, else "
        '{"RMQCTL_DAMAGED":"..."} and spaces; its PREPAREDTRANSACTIONOFFSET is 5930485633935736832.',
        "Consumers get it: have them look for the property, and skip or ask the producer. `rmqctl dump -o jsonl` "
        "shows it with the "
        "property; `rmqctl undo` removes all placeholders of a recovery. Bytes that no queue knows of are filled with "
        "placeholders that no consumer receives.",
    ),
}
