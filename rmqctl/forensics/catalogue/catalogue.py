"""The codes of findings, and the terms that `rmqctl explain` knows."""

from __future__ import annotations

from rmqctl.forensics.catalogue.explanation import OF_COMPACTION, Explanation
from rmqctl.forensics.preflight.problem_texts import OF_PREFLIGHT

_RESTART = "A broker that scans this place at its start ends the log here and drops everything after it."
_CLIENT = (
    "Brokers serve the message, but Java clients reject it together with all messages that follow it in the same "
    "pull. Consumers may stop here or skip messages. When the group has consumed all messages before this one, set "
    "its offset to the next one. A slave's copy of the message may be intact."
)
_HEAL = " If it is the record that changed, `rmqctl heal` may know how: see its --dry-run first."
_REBUILD = "`rmqctl rebuild` can build the queues again from the log."
_INDEX = "Only look-ups by key suffer. `rmqctl rebuild` can build the index again from the log."

CATALOGUE: dict[str, Explanation] = {
    "bad-magic": Explanation(
        "No record of RocketMQ has this magic code. Either a record was overwritten, or no record begins here.",
        _RESTART,
    ),
    "bad-size": Explanation(
        "TOTALSIZE is too small for a record, or larger than the rest of the file.",
        _RESTART,
    ),
    "bad-length": Explanation(
        "The lengths of body, topic and properties do not add up to TOTALSIZE.",
        _RESTART,
    ),
    "bad-body-crc": Explanation(
        "The body is not what its producer sent: its CRC-32 differs from BODYCRC. If one flipped bit explains the "
        "difference, the detail names each bit that can.",
        _RESTART + " Brokers do not check the checksum of an empty body.",
    ),
    "bad-property-crc": Explanation(
        "The CRC-32 of the record differs from its property __CRC32# (5.2 and later): some byte of the record changed.",
        "Brokers check this only with forceVerifyPropCRC. Compare the message with the producer's copy, or with a "
        "slave's.",
    ),
    "bad-physical-offset": Explanation(
        "The record's own physical offset is not the offset where the record lies. Many such records in a row are old "
        "bytes of a reused file, or the file has a wrong name. In one between right ones, the field itself changed.",
        "No broker checks this: brokers serve the record, by queue and by key, until they build its unit or its index "
        "entry anew, which then leads elsewhere. `recover` and `rebuild` keep both. For many such records, compare the "
        "name of the file with the names of the files before and after it.",
    ),
    "bad-port": Explanation(
        "A host of the record has a port outside 0 to 65535: a bit of the record changed. No checksum covers this "
        "field.",
        _CLIENT,
    ),
    "bad-compression": Explanation(
        "SYSFLAG says that the body is compressed. But the body does not begin as its compression type (zlib, lz4, "
        "zstd) does, or the type is unknown: a bit of SYSFLAG changed. BODYCRC does not cover SYSFLAG.",
        _CLIENT,
    ),
    "field-changed": Explanation(
        "A field of the record that no checksum covers differs by one bit from what other records, its unit and its "
        "index entries say. Brokers take it as it is.",
        "`rmqctl heal STORE --yes` writes the bit back, and `undo` takes that back.",
    ),
    "bad-queue-offset": Explanation(
        "The record's unit is at another place of its queue than QUEUEOFFSET says. Either a bit of the record changed "
        "(no checksum covers the field), or the broker had given a queue offset to a message that it then refused: it "
        "numbers on behind the gap, but puts each unit at the queue's end ('logic queue order maybe wrong').",
        "The queue is right: brokers deliver the message at its place in the queue and never read this field, but "
        "consumers see the wrong offset. `recover` and `rebuild` keep the message at its place, and leave the record "
        "as it is.",
    ),
    "bad-blank-size": Explanation(
        "The blank record at the end of a file has a wrong size. The blank is damaged, or it was written over "
        "another record.",
        "4.x treats the blank as the end of the file. 5.3 ends the log here if the size is too large.",
    ),
    "bad-entry": Explanation(
        "DLedger puts a header of 48 bytes before each record. This header is damaged, or it does not continue "
        "where the entry before it ended. The record after the header is still read if it is whole.",
        "A broker that scans this place at its start ends its log here. It gets what follows from the other members "
        "of its group, if they have it.",
    ),
    "no-blank": Explanation(
        "A file ends without a blank record although the log continues in the next file. The file was cut, or its "
        "end was never written.",
        _RESTART,
    ),
    "torn-properties": Explanation(
        "The last byte of PROPERTIES is zero. The record was not written to its end (a torn write leaves zeros), or "
        "its end was zeroed later.",
        "No broker checks this: a broker serves the message without its last properties. Compare the message with "
        "the producer's copy, or with a slave's.",
    ),
    "hole": Explanation(
        "There are zeros where a record should be, and whole records after them. Some pages never reached the disk, "
        "or a sector was zeroed. Or the log was cut here before, and old records remain after its end: then their "
        "store times are older than those before the zeros.",
        _RESTART,
    ),
    "bytes-behind-end": Explanation(
        "The bytes after the log's end are not zero. They come from a torn write, or from before a truncation.",
        "Old records there can become part of the log again (RocketMQ's issue 10666): truncate the log's tail.",
    ),
    "file-gap": Explanation(
        "One or more files in the middle of the sequence are missing.",
        "Brokers start, and consumers get none of the messages of the missing files, without an error. If the "
        "queues are missing as well, 4.x may wait forever at its start. Look for the files. `recover --keep-going` "
        "puts files full of placeholders in their place.",
    ),
    "file-overlap": Explanation(
        "Two files claim the same offsets.",
        "Keep the right file and move the other one away: a broker reads both, in the order of their names.",
    ),
    "file-length": Explanation(
        "The file does not have the same length as the others: it was cut, or only partly copied.",
        "No broker loads such a store.",
    ),
    "queue-in-both-folders": Explanation(
        "A topic has queues in consumequeue/ and in batchconsumequeue/. All queues of a topic must have the type "
        "that topics.json names.",
        "No broker of 5.x starts, and rmqctl changes nothing in such a store. Move away the topic's folder of the "
        "wrong type. This is the folder in batchconsumequeue/, unless topics.json has queue.type=BatchCQ for the "
        "topic. Then let `rebuild` build the missing queues.",
    ),
    "bad-journal": Explanation(
        "A journal in STORE/.rmqctl is not as rmqctl writes it. `undo` needs the journal to take a change back. The "
        "journal is damaged, or someone forged it so that `undo` changes other files.",
        "No verb uses the journal, and verbs that change the store refuse to run (exit 4). `rmqctl undo STORE "
        "--list` shows which change it belongs to. If that change was finished, `--drop-damaged NAME` forgets it. "
        "Otherwise, look at the journal's folder and remove it by hand. If the log lies outside the store, give "
        "--broker-conf with the file that names the log's folders.",
    ),
    "foreign-file": Explanation(
        "RocketMQ does not create this file or folder.",
        "A file like this in commitlog/ can keep a broker from starting, or be loaded as a part of the log, which a "
        "start may then cut: move it away, or let `recover` delete it. If it is a file of the log (named as a missing "
        "one with a suffix, or with a digit too few or too many), rename it back.",
    ),
    "link-not-followed": Explanation(
        "A symbolic link leads out of the store and was not followed.",
        "If the link is intended, use --follow-links.",
    ),
    "unreadable": Explanation(
        "A file or folder cannot be read, or became shorter while it was read.",
        "The answer is incomplete. Correct the permissions or copy the disk, then try again.",
    ),
    "missing-unit": Explanation(
        "Messages in the log have no unit in their queue: consumers never get them.",
        _REBUILD,
    ),
    "unit-mismatch": Explanation(
        "A unit does not point to the message with its topic, queue and queue offset.",
        f"{_REBUILD} It keeps a unit if one flipped bit in its record explains the difference.{_HEAL}",
    ),
    "unit-size": Explanation(
        "The size in a unit is not the size of its record: a consumer receives a torn message.",
        _REBUILD,
    ),
    "unit-tags-code": Explanation(
        "The tags code of a unit is not that of its message: tag filters drop the message, or its delay is wrong.",
        f"{_REBUILD} The unit then agrees with the record. If it is the record whose tags changed (most logs have no "
        "checksum of them), the rebuild does not bring the old tags back: see `rmqctl heal STORE --dry-run` first.",
    ),
    "unit-order": Explanation(
        "The physical offsets in a queue do not ascend.",
        _REBUILD,
    ),
    "unit-hole": Explanation(
        "There is an unused unit between used ones: a broker may end the queue here.",
        _REBUILD,
    ),
    "unit-behind-end": Explanation(
        "There are bytes after the end of a queue, and they are not a unit.",
        _REBUILD,
    ),
    "dangling-unit": Explanation(
        "Units point after the end of the log: their messages, or the last file of the log, were removed.",
        "The next start of a broker removes these units.",
    ),
    "unit-lost-message": Explanation(
        "Units point to damaged bytes of the log: these messages are lost.",
        "Another finding, for the log at the same offset, says why.",
    ),
    "ext-missing": Explanation(
        "The address in a unit leads to no unit of consumequeue_ext.",
        _REBUILD,
    ),
    "index-length": Explanation(
        "The index file does not have the same length as the others.",
        _INDEX,
    ),
    "index-header": Explanation(
        "The header of an index file contradicts the content of the file.",
        _INDEX,
    ),
    "index-chain": Explanation(
        "The chain of entries with one slot is broken: the predecessor in an entry, or the number in a slot, is "
        "wrong. Look-ups miss keys.",
        _INDEX,
    ),
    "index-order": Explanation(
        "The physical offsets of the entries do not ascend.",
        _INDEX,
    ),
    "index-time": Explanation(
        "The time of an entry is not that of its message: look-ups with a time range miss the message.",
        _INDEX + _HEAL,
    ),
    "index-dangling": Explanation(
        "Entries lead to no message of the log with that key.",
        _INDEX + _HEAL,
    ),
    "index-missing": Explanation(
        "Messages with keys are not in the index: look-ups by key miss them.",
        _INDEX + " This is normal if the broker runs with messageIndexEnable=false: give --broker-conf.",
    ),
    "index-database-dangling": Explanation(
        "Rows of the index in rocksdbstore/ lead to no message of the log with that key.",
        "Only look-ups by key suffer. Brokers with indexFileReadEnable=false find these keys without their messages.",
    ),
    "index-database-missing": Explanation(
        "Messages with keys are not in the index of rocksdbstore/, which the broker asks: look-ups by key miss them.",
        "After a crash this is normal: the database then lacks the last minutes, and the next start adds them. "
        "`rmqctl query --scan` finds the messages. Messages before the first one in the index do not count.",
    ),
    "database-log": Explanation(
        "RocksDB's own log, or its MANIFEST, is damaged or gone. It lacks the rows of what follows, without an error.",
        "Queues are filled anew from the commit log: `rmqctl recover`. Configuration is nowhere else: compare what "
        "`rmqctl config show` and `rmqctl lag` say with a slave or a copy before any start.",
    ),
    "half-database-dangling": Explanation(
        "Half messages in rocksdbstore/ (transRocksDBEnable) are not in the log.",
        "The broker drops these rows: it asks no producer whether to commit the message, and no consumer gets it.",
    ),
    "log-start-missing": Explanation(
        "Queues point to messages before the log's first file. These messages are too young to have expired, so "
        "their file was lost, or someone deleted it.",
        "Look for the file. If it was deleted on purpose, there is nothing to do. Files that `rmqctl clean` deleted "
        "are no finding as long as its receipts (rmqctl-clean.log) are in the store. Receipts can be wrong, because "
        "they are copied with the store: `verify --ignore-receipts` ignores them. The retention is fileReservedTime "
        "in --broker-conf, or 72 h.",
    ),
    "log-missing": Explanation(
        "There are queues, but no file of the commit log.",
        "Look for the commit log (storePathCommitLog in broker.conf). Start no broker: it would delete the queues.",
    ),
    "abort": Explanation(
        "`abort` exists and no broker on this host has the store open: the store was not shut down cleanly.",
        "The next start of a broker runs the abnormal recovery. The next clean shutdown removes `abort`. If "
        "`verify` finds nothing else at level 3 and no broker uses the store, you may delete `abort`: this marks the "
        "store as cleanly shut down. Keep it where the queues are in RocksDB: a start needs it to fill them all.",
    ),
    "checkpoint-missing": Explanation(
        "There is no checkpoint, or it is too short.",
        "An abnormal recovery then scans the whole log and deletes the last index file, which is not full yet. 5.4.0 "
        "and later scan only the last 10 files of the log (commitLogRecoverMaxNum in broker.conf): queues that miss "
        "older messages still miss them afterwards.",
    ),
    "checkpoint-length": Explanation(
        "The checkpoint does not have 4096 bytes.",
        "Brokers map 4096 bytes. The file was cut, or overwritten.",
    ),
    "checkpoint-behind": Explanation(
        "The checkpoint is zero or older than the last message, although the store was shut down cleanly.",
        "This is safe but slow: an abnormal recovery scans more of the log, or all of it (5.4.0 and later: at most the "
        "last 10 files), and deletes the last index file, which is not full yet.",
    ),
    "checkpoint-ahead": Explanation(
        "The checkpoint is later than the last message, or negative.",
        "An abnormal recovery may begin too late and miss queue units.",
    ),
    "config-invalid": Explanation(
        "A file of config/ is not valid JSON, or it has a value of a type that a broker rejects. Or a database there "
        "is damaged: the broker does not start, and only a copy helps.",
        "A broker deletes the file and reads its .bak. If the .bak is not valid either, the broker does not start, "
        "or starts with an empty configuration. If the file has only `null`, the broker does not read the .bak, and "
        "starts with an empty configuration. Brokers up to 5.3 do the same for `[]` and, in most files, for blanks. "
        "`rmqctl config restore STORE FILE` puts the .bak back; it rebuilds topics.json and subscriptionGroup.json if "
        "there is no good one.",
    ),
    "config-missing": Explanation(
        "A file of config/ and its .bak do not exist, although other files show that a broker wrote it.",
        "A broker starts with an empty file. Put a good copy there, for example from a slave. `rmqctl config restore "
        "STORE FILE` rebuilds topics.json and subscriptionGroup.json from the store. Nothing in the store has the "
        "offsets of consumerOffset.json: `rmqctl config set-offset --new-group` sets them.",
    ),
    "backup-larger": Explanation(
        "The .bak of a file in config/ has entries that the file lacks, and the store still uses them.",
        "Entries were lost, or someone deleted several at once. `rmqctl config restore STORE FILE --from bak "
        "--dry-run` shows what the .bak would change.",
    ),
    "offset-beyond-queue": Explanation(
        "The offset of a group, or of a delay level, is after the end of its queue: messages were lost, or the "
        "queue was cut.",
        "The group may skip new messages up to its offset. `rmqctl config set-offset STORE GROUP TOPIC --to latest` "
        "sets the offset of the group to the end of each queue. A delay level loses what waits in it when a "
        "broker of 4.9.2 or later starts: first `rmqctl config set-offset STORE --delay-level N --to undelivered`.",
    ),
    "unfinished-change": Explanation(
        "The journal in STORE/.rmqctl belongs to a change that was interrupted.",
        "`rmqctl undo STORE` brings the store back to where it was before the change.",
    ),
    "queue-type": Explanation(
        "topics.json has another queue.type for a topic than the folder of the topic's queues: SimpleCQ is for "
        "consumequeue/, BatchCQ for batchconsumequeue/.",
        "No broker of 5.x loads this store. Correct queue.type in topics.json, or move away the folder.",
    ),
    "queue-database-differs": Explanation(
        "A queue in RocksDB does not have the same units as the one in files (rocksdbCQDoubleWriteEnable).",
        "Consumers notice it if combineCQPreferCQType is defaultRocksDB: the broker then does not start, or serves a "
        "part of the messages. `rmqctl recover STORE` removes the database, for the next start to fill it.",
    ),
    "topic-unlisted": Explanation(
        "A queue has messages, and topics.json does not list its topic.",
        "Clients get the error that the topic does not exist. Compare topics.json with its .bak and with that of "
        "another broker of the cluster.",
    ),
    "timer-files-missing": Explanation(
        "timerlog/ or timerwheel is missing, and a broker never delivers messages that wait in rmq_sys_wheel_timer.",
        "`rmqctl rebuild STORE timers` writes the files anew from the log. No start does.",
    ),
    "timer-undelivered": Explanation(
        "The timer's files do not lead to messages that wait in rmq_sys_wheel_timer: a unit of timerlog or a slot of "
        "timerwheel is damaged, or timercheck is ahead of what the log has, as after a cut. With timerRocksDBEnable, "
        "the database was removed after a broker had read the queue, or has no timeline_checkpoint: brokers write it "
        "when they first deliver a message, and pass over what became due while they were down before that.",
        "`rmqctl rebuild STORE timers` writes the files anew, and each message is delivered once.",
    ),
    "timer-file-length": Explanation(
        "timerwheel, or a file of timerlog, has a wrong length, or timerlog ends before the place that timercheck "
        "names. No broker with timerWheelEnable starts on a file of a wrong length.",
        "`rmqctl rebuild STORE timers` writes the files anew.",
    ),
    "timer-repeats": Explanation(
        "The next start delivers timer messages again: the broker died before it wrote timercheck.",
        "`rmqctl rebuild STORE timers` before the start keeps consumers from getting them twice.",
    ),
    "offset-went-back": Explanation(
        "The offset of a group is lower than it was: the .bak of its file, or the group's own retries, show it.",
        "If nobody set it back on purpose: `rmqctl config set-offset STORE GROUP TOPIC QUEUE --to OFFSET`.",
    ),
    "store-times-fall": Explanation(
        "Store times fall by more than a minute along the log, and stay lower: the clock of the broker went back.",
        "Nothing is lost. Set a group's offset by `--to OFFSET` rather than by a time.",
    ),
    "queue-unreadable": Explanation(
        "A queue has messages that no consumer can read: the topic's perm lacks 4, or readQueueNums is too low.",
        "On the running broker: `mqadmin updateTopicPerm -b HOST:PORT -t TOPIC -p 6`, or `mqadmin updateTopic` with "
        "more read queues (-r) until the queue is empty.",
    ),
    "entries-missing": Explanation(
        "The log of a DLedger node ends before the index that its group has agreed on (committedIndex in "
        "dledger-ID/checkpoint).",
        "Compare with the other members of the group (`rmqctl info`): one whose log ends later has the entries. Copy "
        "the whole store from there while both are stopped, and keep this one.",
    ),
    "dledger-refused": Explanation(
        "DLedger cannot load its own index (dledger-ID/index), or its checkpoint: the broker does not start.",
        "Move dledger-ID/index or dledger-ID/checkpoint away, whichever is named: DLedger writes its index anew from "
        "its log, and does without a checkpoint.",
    ),
    "log-joint": Explanation(
        "The log up to here and the log from here on are of two brokers: the queue offsets of several queues jump at "
        "one place, as after a switch of masters whose old master came back as a slave.",
        "Copy the store from the master again. `rmqctl truncate STORE --to OFFSET` cuts this log at the joint.",
    ),
    "twin-queue-offset": Explanation(
        "Two messages have the same offset in one light queue (LMQ). The queue leads to the first.",
        "`rmqctl dump STORE --from-offset OFFSET --to-offset OFFSET+1 --body base64 -o jsonl | rmqctl append STORE "
        "--from -` stores the second message again, so that consumers get it.",
    ),
    "lmq-offsets-missing": Explanation(
        "With enableLmq, a broker reads only lmqConsumerOffset.json. It lacks offsets of consumerOffset.json.",
        "`rmqctl doctor STORE --broker-conf FILE` has the command that copies them.",
    ),
    "conf-size": Explanation(
        "A size in broker.conf is that of no file, or the version does not read its name and takes the default.",
        "`rmqctl doctor STORE --broker-conf FILE` names the line, and the right one.",
    ),
    "disk-over-limit": Explanation(
        "A broker takes no messages, because its disk is fuller than diskSpaceWarningLevelRatio (90 %).",
        "`rmqctl clean STORE --manual --dry-run` shows what has expired. Or move other files off the disk.",
    ),
    "delay-overdue": Explanation(
        "Delayed messages, or retries, were due more than an hour before the log's last message, and are not "
        "delivered: the offset of their level did not move.",
        "A start of the broker delivers them. `rmqctl config set-offset STORE --delay-level N --to OFFSET` passes over "
        "a message that no broker can deliver.",
    ),
    "half-overdue": Explanation(
        "Half messages have neither commit nor rollback more than a day after they were stored.",
        "A broker asks the producers of the group in PGROUP: start one. `rmqctl trace` shows the life of a message.",
    ),
    "timer-beyond-queue": Explanation(
        "timerQueueOffset in config/timercheck is after the end of the timer's queue: the log was cut, or the file is "
        "of another store.",
        "A broker of a late 5.x goes on at the queue's end. Entries of timerlog that lead to cut messages are tried "
        "again for ever (RocketMQ's issue 10668).",
    ),
    "epochs-invalid": Explanation(
        "epochFileCheckpoint of a broker with a controller (5.x) is not valid.",
        "The broker reads its .bak. Without a good .bak it has no epochs, and as a slave it does not compare its log "
        "with its master's. A broker without a controller does not read the file.",
    ),
    "epochs-beyond-log": Explanation(
        "The last epoch in epochFileCheckpoint begins after the end of the log: the log was cut, or the file is of "
        "another store.",
        "With a controller, a slave cuts its log, or stops replication, by its epochs. Copy the store again from a "
        "healthy broker before this one starts.",
    ),
    "identity-invalid": Explanation(
        "brokerIdentity of a broker with a controller (5.x) is not CLUSTER#BROKER#ID.",
        "The broker registers with its controller as a new one, and gets another id.",
    ),
    "config-empty": Explanation(
        "A file of config/ has no entry, and its .bak has entries. A broker never loses all topics, groups or offsets "
        "at once.",
        "A broker loads the empty file, and not the .bak. `rmqctl config restore STORE FILE` puts the .bak back.",
    ),
    "backup-newer": Explanation(
        "The .bak of a file in config/ has a later data version than the file. A broker never leaves this.",
        "Someone put an old file there. Compare both files, and keep the right one.",
    ),
} | OF_COMPACTION

TERMS: dict[str, Explanation] = {
    "placeholder": Explanation(
        "A message that `recover` or `salvage` wrote in place of a damaged or missing one, or `erase` (RMQCTL_DAMAGED "
        "is `erased`: nothing is wrong). `recover` without --keep-going writes them only in a file that was cut, and "
        "at damage that a later start would meet. Size and place stay. Its property RMQCTL_DAMAGED names the finding; "
        "the property is missing if it does not fit into the record. The body stays if it is whole. Otherwise, it "
        'becomes {"RMQCTL_DAMAGED":"..."} and spaces. PREPAREDTRANSACTIONOFFSET is 5930485633935736832, a value that '
        "marks placeholders.",
        "Consumers receive placeholders: let them check for the property, and skip the message or ask the producer "
        "for it. `rmqctl dump -o jsonl` shows placeholders with the property. `rmqctl undo` removes all "
        "placeholders of a recovery. Bytes that no queue points to are filled with placeholders that no consumer "
        "receives.",
    ),
} | OF_PREFLIGHT
