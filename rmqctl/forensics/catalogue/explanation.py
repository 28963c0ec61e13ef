"""The meaning of the codes of findings on compaction/.

Those of all others are in `finding`.
"""

from __future__ import annotations

from typing import NamedTuple


class Explanation(NamedTuple):
    """The meaning of a code, and the advice for the operator."""

    meaning: str
    then: str


_REFILL = (
    "If the log still has the messages: with the broker stopped, move the queue's folders in compactionLog and "
    "compactionCq away, create `abort` and remove `checkpoint`. The next start copies them from the log (5.4.0 and "
    "later: from its last 10 files)."
)
OF_COMPACTION = {
    "compaction-files": Explanation(
        "A file of compactionLog has none of its name in compactionCq, or the other way round, or a file or folder is "
        "not named as a broker names it. Brokers of 5.1 and later do not start, unless enableCompaction is false.",
        f"Move a file away that does not belong there. {_REFILL}",
    ),
    "compaction-not-loaded": Explanation(
        "A file in compaction/ has a wrong length, or a queue lacks one of its folders. Brokers start, and consumers "
        "get nothing of this queue.",
        _REFILL,
    ),
    "compaction-record": Explanation(
        "A record in compactionLog is damaged, or a unit of compactionCq does not lead to its record. Consumers do not "
        "get the message, or get it changed, and may miss those after it. The next compaction drops all records from "
        "a bad magic code or size to the end of the file: keys then have older values again.",
        f"`rmqctl dump STORE --compaction --damaged` shows what is whole: keep a copy. {_REFILL}",
    ),
    "compaction-missing": Explanation(
        "The log has the newest message of a key, and compactionLog does not. No consumer gets it. That is also so for "
        "messages from before the topic was compacted.",
        f"Files of compaction/ were lost. {_REFILL}",
    ),
    "compaction-beyond-queue": Explanation(
        "compactionCq ends at a later queue offset than the queue: the log was cut, or compaction/ is older or newer. "
        "Brokers store the next messages, and no consumer gets them until the queue has reached that offset.",
        _REFILL,
    ),
    "compaction-position": Explanation(
        "position-checkpoint cannot be read, or is after the end of a queue in compactionCq.",
        "No message is lost. Without a valid file or .bak, a broker compacts all again. With one that is ahead, it "
        "compacts the queue only after this offset: consumers also get older values, and the files grow.",
    ),
}
