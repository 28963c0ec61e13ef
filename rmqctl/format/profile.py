"""Where brokers differ: a profile stands for the versions that behave alike.

`4.7` is 4.0 to 4.9.0, `4.9` is 4.9.1 to 4.9.8, `5.3` is 5.2 and later.
"""

from __future__ import annotations

from typing import NamedTuple


class Profile(NamedTuple):
    """What a broker of these versions does."""

    name: str
    ends_properties_with_separator: bool
    """Whether 0x02 stands behind the last property, too (MessageDecoder.messageProperties2String)."""
    knows_long_topics: bool
    """Whether V2 records exist: topics longer than 127 bytes."""
    writes_pid_into_abort: bool
    knows_topic_attributes: bool
    """Whether topics.json has `attributes` for each topic, and a stateVersion."""
    moves_min_offset_of_expired_queues: bool
    """Whether a queue whose messages are all gone from the log begins at its end (ConsumeQueue.correctMinOffset), not at 0."""


PROFILE_4_7 = Profile(
    "4.7",
    ends_properties_with_separator=True,
    knows_long_topics=False,
    writes_pid_into_abort=False,
    knows_topic_attributes=False,
    moves_min_offset_of_expired_queues=False,
)
PROFILE_4_9 = PROFILE_4_7._replace(name="4.9", ends_properties_with_separator=False)
PROFILE_5_3 = Profile(
    "5.3",
    ends_properties_with_separator=True,
    knows_long_topics=True,
    writes_pid_into_abort=True,
    knows_topic_attributes=True,
    moves_min_offset_of_expired_queues=True,
)
PROFILES = {profile.name: profile for profile in (PROFILE_4_7, PROFILE_4_9, PROFILE_5_3)}
