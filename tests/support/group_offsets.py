"""Offsets of consumer groups, added to those that a store has."""

from __future__ import annotations

import json
from pathlib import Path

from rmqctl.store.read.consumers.consumer_offsets import CONSUMER_OFFSET
from rmqctl.store.read.read_only_store import ReadOnlyStore

Offsets = dict[str, dict[str, int]]


def add_offsets(store: Path, further: Offsets) -> Offsets:
    """Set the offsets of `topic@group` by queueId in consumerOffset.json; return all that it has then."""
    content = ReadOnlyStore(store).config(CONSUMER_OFFSET).content
    assert content is not None
    offsets: Offsets = content.setdefault("offsetTable", {})
    for key, by_queue in further.items():
        offsets[key] = offsets.get(key, {}) | by_queue
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / CONSUMER_OFFSET).write_text(json.dumps(content), encoding="utf-8")
    return offsets
