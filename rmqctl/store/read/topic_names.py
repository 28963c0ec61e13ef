"""The names of the topics in a store, and error texts for unknown names."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqctl.store.read.read_only_store import ReadOnlyStore

NAMES_COMPARED_MAX = 10_000  # difflib takes some 0.1 ms each


def unknown_topic(store: ReadOnlyStore, topic: str) -> str | None:
    """Return the error text if a topic does not exist, and None otherwise.

    A topic exists if it has a queue or topics.json lists it; one whose queues may be unreadable has no error either.
    The text proposes the most similar known name.
    """
    if store.topic_queues(topic) or topic in store.listed_topics or store.is_unread(topic):
        return None
    known = (store.queue_topics | set(store.listed_topics)) - {topic}
    said = f"topic {topic!r} has no queue in this store, and topics.json does not list it"
    near = nearest_name(topic, sorted(known))
    return f"{said}; the nearest name is {near!r}" if near else said


def nearest_name(wanted: str, known: list[str]) -> str | None:
    """Return the known name that is most similar to `wanted`, or None."""
    same = [name for name in known if name.lower() == wanted.lower()]
    return next(iter(same or get_close_matches(wanted, known[:NAMES_COMPARED_MAX], n=1)), None)
