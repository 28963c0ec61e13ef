"""How large the files of a store are, as the files show it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rmqctl.store.config.file_sizes import geometry_of_conf
from rmqctl.store.read.read_only_store import ReadOnlyStore
from rmqctl.store.read.store_file_sizes import geometry_of_store


def test_an_index_file_that_was_cut_does_not_say_how_large_others_are(golden: Callable[[str], Path]) -> None:
    root = golden("497-basic")
    usual = geometry_of_store(ReadOnlyStore(root))
    assert (usual.index_slots, usual.index_entries) == (100, 400)
    files = sorted((root / "index").iterdir(), reverse=True)
    assert len(files) > 1
    os.truncate(files[0], 124)  # as long as a file of one slot and four entries
    assert geometry_of_store(ReadOnlyStore(root)) == usual
    for file in files:
        os.truncate(file, 124)
    found, assumed = geometry_of_store(ReadOnlyStore(root)), geometry_of_conf(ReadOnlyStore(root).conf)
    assert (found.index_slots, found.index_entries) == (assumed.index_slots, assumed.index_entries)
