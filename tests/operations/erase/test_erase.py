"""After `erase`, no file below the store has the bytes, and everything else is as it was."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from rmqctl.errors import ExitCode
from rmqctl.format.message import ERASED, Message
from rmqctl.format.properties import UNIQ_KEY, keys
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.operations.erase.content import Pieces, Search, is_word
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.journal.journals import JournalState
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import unpack
from tests.support import small_store
from tests.support.faulty_system import Fault, FaultySystem, crash_points
from tests.support.file_edits import flip_bits, overwrite
from tests.support.journaled_store import states, tree, with_times, without_rmqctl, without_times
from tests.support.ran_command import ran

Golden = Callable[[str], Path]


def messages_of(root: Path) -> dict[int, Message]:
    with closing(ReadOnlyStore(root)) as store:
        items = [item for item in store.commit_log.scan() if isinstance(item, Message)]
        return {item.physical_offset: item._replace(body=memoryview(bytes(item.body))) for item in items}


def files_with(root: Path, texts: Iterable[bytes]) -> list[tuple[str, bytes]]:
    """Plain grep, of whole words: poison-7 is no part of poison-757."""
    found = [(path.name, path.read_bytes()) for path in root.rglob("*") if path.is_file()]
    words = {text: re.compile(rb"(?<![A-Za-z0-9])" + re.escape(text) + rb"(?![A-Za-z0-9])") for text in texts}
    return [(name, text) for name, data in found for text in words if text in data and words[text].search(data)]


def texts_of(message: Message) -> list[bytes]:
    found = message.properties
    texts = [bytes(message.body), found.get(UNIQ_KEY, "").encode(), *(key.encode() for key in keys(found))]
    return [text for text in texts if len(text) >= 8]


CASES = [
    ("broker-497", "poison-7", {"orders", "SCHEDULE_TOPIC_XXXX", "%RETRY%billing", "%DLQ%billing"}),
    ("broker-497", "tx61", {"RMQ_SYS_TRANS_HALF_TOPIC", "payments"}),
    ("broker-550", "poison-157", {"orders", "SCHEDULE_TOPIC_XXXX", "%RETRY%billing"}),
    ("broker-550", "timer8", {"rmq_sys_wheel_timer", "timed"}),
    ("broker-550", "pop20", {"popt", "%RETRY%popgroup_popt"}),
    ("broker-550", "ck0", {"cmpt"}),
    ("533-propcrc", "key1", set()),
]


@pytest.mark.parametrize(("name", "key", "topics"), CASES)
def test_every_copy_is_erased_and_nothing_else(name: str, key: str, topics: set[str], golden: Golden) -> None:
    root = golden(name)
    before = messages_of(root)
    if not topics:
        key = next(iter(keys(next(iter(before.values())).properties)))
    result = ran("erase", root, "--key", key, "--yes", "-o", "json")
    assert result.code == ExitCode.REPAIRED, result.err
    document = json.loads(result.out)
    places = {row["physicalOffset"] for row in document["erased"] if row["path"].startswith("commitlog")}
    erased = [before[place] for place in places]
    assert erased
    assert not topics or {message.topic for message in erased} == topics
    after = messages_of(root)
    assert after.keys() == before.keys()
    assert {place for place in after if after[place] != before[place]} == places
    for old in erased:
        new = after[old.physical_offset]
        kept = ("size", "queue_id", "queue_offset", "store_timestamp", "topic", "born_host", "flag", "reconsume_times")
        assert [getattr(new, field) for field in kept] == [getattr(old, field) for field in kept]
        assert new.placeholder == ERASED
        assert new.properties.keys() - old.properties.keys() == {"RMQCTL_DAMAGED"}
        assert {"KEYS", "TAGS", UNIQ_KEY}.isdisjoint(new.properties)
    assert files_with(root, [text for message in erased for text in texts_of(message)]) == []
    assert not (root / ".rmqctl").exists()
    verified = ran("verify", root, "--level", 3, "-o", "json")
    assert json.loads(verified.out)["findings"] == []
    assert ran("doctor", root).code == 0
    assert ran("erase", root, "--key", key, "--yes").code == 0


def test_undo_brings_every_byte_back_only_where_asked(golden: Golden) -> None:
    root = golden("broker-497")
    before = tree(root)
    assert ran("erase", root, "--key", "poison-7", "--keep-undo", "--yes").code == 3
    held = ran("erase", root, "--key", "poison-7", "--dry-run")
    assert (held.code, "0001-erase" in held.err) == (4, True)
    assert ran("undo", root, "--yes").code == 0
    assert with_times(root) == {name: of for name, of in before.items() if name != "."}


@pytest.mark.parametrize("text", ["o14", "poison-"])
def test_a_short_text_is_found_in_bodies_keys_and_properties(text: str, golden: Golden) -> None:
    root = golden("broker-497")
    records = messages_of(root).items()
    has = {at for at, of in records if text.encode() in bytes(of.body) + b"\x02" + of.properties_bytes}
    found = ran("erase", root, "--match", text, "--dry-run", "-o", "json")
    assert has
    assert {one["physicalOffset"] for one in found.document()["erased"]} >= has
    assert (found.code, "nothing brings them back" in found.err) == (1, True)


def test_a_match_counts_as_part_of_longer_words_in_every_file(golden: Golden) -> None:
    root = golden("broker-550")
    assert ran("erase", root, "--key", "pop19", "--keep-undo", "--yes").code == 3  # pop190 is another key
    (root / "config/customers.bak").write_bytes(b"xpop body 19")
    found = ran("erase", root, "--match", "op body 1", "--drop-journals", "--yes", "-o", "json")
    assert {one["path"] for one in found.document()["remains"]} == {"config/customers.bak"}
    assert (found.code, found.document()["journals"]) == (4, ["0001-erase"])


def test_a_file_without_offsets_is_refused(golden: Golden, tmp_path: Path) -> None:
    (tmp_path / "none").write_bytes(b"\n")
    found = ran("erase", golden("broker-497"), "--offsets", tmp_path / "none", "--dry-run")
    assert (found.code, "none has no physical offset" in found.err) == (2, True)


def test_a_replica_does_not_bring_it_back(golden: Golden, tmp_path: Path) -> None:
    root, other = golden("broker-497"), unpack("broker-497", tmp_path / "other")
    erased = ran("erase", root, "--key", "poison-7", "--yes", "-o", "json").document()["erased"]
    assert ran("heal", root, "--from", other, "--dry-run").code == 0
    only = ran("diff", other, root, "--messages")
    assert f"{len(erased)} of them are erased in B" in only.err


def test_an_earlier_journal_with_the_bytes_stops_it(golden: Golden) -> None:
    root = golden("broker-497")
    message = next(found for found in messages_of(root).values() if found.properties.get("KEYS") == "poison-7")
    flip_bits(root / "commitlog" / f"{0:020d}", message.physical_offset + 100, 4)
    assert ran("heal", root, "--yes").code == 3
    texts = texts_of(message)
    # heal keeps one byte: a journal with the whole record
    (root / ".rmqctl/journal/0001-heal/kept/copy").write_bytes(b"x" + b" ".join(texts))
    before = tree(root)
    for how in ("--yes", "--dry-run"):
        held = ran("erase", root, "--key", "poison-7", how)
        assert (held.code, held.out) == (4, "")
        assert "0001-heal" in held.err
    assert tree(root) == before
    assert ran("erase", root, "--key", "poison-7", "--drop-journals", "--yes").code == 3
    assert not (root / ".rmqctl").exists()
    assert files_with(root, texts) == []


def test_journals_are_dropped_where_no_record_is_left(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    root = golden("broker-497")
    message = next(found for found in messages_of(root).values() if found.properties.get("KEYS") == "poison-7")
    assert ran("erase", root, "--key", "poison-7", "--keep-undo", "--yes").code == 3
    kept = without_times(tree(root))
    with monkeypatch.context() as patch:
        patch.setattr(WritableStorage, "free_bytes", lambda *_: 0)
        other = ran("erase", root, "--match", "DefaultCluster", "--drop-journals", "--yes")
        assert (other.code, "make room" in other.err) == (4, True)
    assert without_times(tree(root)) == kept
    done = ran("erase", root, "--key", "poison-7", "--drop-journals", "--yes")
    assert (done.code, "0001-erase" in done.out) == (3, True)
    assert files_with(root, texts_of(message)) == []
    assert not (root / ".rmqctl").exists()


def test_stale_bytes_become_zeros_and_other_files_are_named(golden: Golden) -> None:
    root = golden("broker-497")
    by_place = messages_of(root)
    message = next(found for found in by_place.values() if found.properties.get("KEYS") == "poison-57")
    record = (root / "commitlog" / f"{0:020d}").read_bytes()[message.physical_offset : message.end]
    last = max(by_place)
    end = by_place[last].end
    overwrite(root, end + 500, record[60:] + record[:200])
    (root / "config/customers.bak").write_bytes(b"who: poison-57, poison-571")
    shown = ran("erase", root, "--key", "poison-57", "--dry-run", "-o", "json")
    assert shown.code == 1
    done = ran("erase", root, "--key", "poison-57", "--yes", "-o", "json")
    assert done.code == 4
    assert done.out == shown.out
    document = json.loads(done.out)
    assert document["remains"] == [
        {"path": "config/customers.bak", "fileOffset": 5, "what": "key", "physicalOffset": None}
    ]
    assert document["zeroedBytes"] > len(message.body)
    (root / "config/customers.bak").unlink()
    assert files_with(root, texts_of(message)) == []
    stale = (root / "commitlog" / f"{max(by_place) // 262144 * 262144:020d}").read_bytes()[end % 262144 :]
    body = bytes(message.body)
    assert not [at for at in range(len(body) - 16) if body[at : at + 16] in stale]


def test_what_a_client_traced_of_it_is_erased_and_other_traces_are_not(golden: Golden) -> None:
    root = golden("broker-497")
    ids = {
        key: found.properties[UNIQ_KEY]
        for found in messages_of(root).values()
        if (key := found.properties.get("KEYS", "")) in ("poison-7", "poison-57")
    }
    for number, traced in enumerate((("poison-7", "poison-57"), ("poison-57",))):
        fields = (["Pub", "1", "r", "g", "orders", ids[key], "", key, "h:1", "5", "1", "0", "true"] for key in traced)
        lines = "".join("\x01".join(record) + "\x02" for record in fields)
        named = {"KEYS": " ".join(word for key in traced for word in (ids[key], key)), UNIQ_KEY: f"{number:032X}"}
        row = {"topic": "RMQ_SYS_TRACE_TOPIC", "queueId": 0, "body": lines, "bodyEncoding": "utf8", "properties": named}
        (root.parent / "trace.jsonl").write_text(json.dumps(row))
        assert ran("append", root, "--from", root.parent / "trace.jsonl").code == 0
    done = ran("erase", root, "--unique-key", ids["poison-7"], "--yes", "-o", "json")
    assert done.code == 3
    erased = [row["topic"] for row in json.loads(done.out)["erased"]]
    assert (len(erased), erased.count("RMQ_SYS_TRACE_TOPIC")) == (5, 1)
    assert files_with(root, [b"poison-7", ids["poison-7"].encode()]) == []


def test_pieces_and_words() -> None:
    text = bytes(range(1, 101))
    search = Pieces([text, b"order-71"])
    assert search.ranges(b"...." + text[30:60] + b"....") == [(4, 34)]
    assert search.ranges(text[30:44]) == []
    assert search.ranges(b"order-71") == [(0, 8)]
    alike = [b"the record with the number %08d and a long end" % number for number in range(3000)]
    assert Pieces(alike[::2]).ranges(bytes(9) + b"".join(alike[::2])) == [(9, 9 + 1500 * len(alike[0]))]
    assert sorted(Search([text, b"order-71"]).texts(b"order-712" + text)) == [(0, b"order-71"), (9, text)]
    assert [is_word(data, 1, 3) for data in (b"-ab-", b"xab-", b"-abx")] == [True, False, False]


def test_what_remains_is_counted_and_only_its_start_is_named(tmp_path: Path) -> None:
    store = small_store.created(tmp_path / "store", geometry=Geometry(65536, 6000, 100, 4000))
    for number in range(1300):
        named = {"KEYS": f"shared-word order-{number}", "UNIQ_KEY": f"{number:032X}"}
        assert store.put_message(small_store.message(number, queue_id=0, properties=named)).is_ok
    store.close()
    found = ran("erase", tmp_path / "store", "--unique-key", f"{7:032X}", "--dry-run", "-o", "json")
    assert (len(found.document()["remains"]), found.document()["remainsCount"]) == (1000, 1299)
    assert "1294 more places" in found.err


def small(root: Path) -> Path:
    """Three copies of a message, among others."""
    store = small_store.created(root, geometry=Geometry(2048, 100, 4, 8))
    for number in range(12):
        key = "customer-4711" if number % 4 == 1 else f"other-{number:05}"
        body = b"the body of the customer" if number % 4 == 1 else b"body of another %d" % number
        changes = {"properties": {"KEYS": key, "TAGS": "TagA", "UNIQ_KEY": f"{number % 4 == 1:032X}"}, "body": body}
        assert store.put_message(small_store.message(number, queue_id=0, **changes)).is_ok
    store.close()
    for number, path in enumerate([*sorted(root.rglob("*"), reverse=True), root]):
        os.utime(path, ns=(number, 1_700_000_000_123_456_789 + number))
    return root


SECRETS = [b"customer-4711", b"the body of the customer", f"{1:032X}".encode()]


@pytest.mark.slow
def test_a_crash_leaves_the_old_store_or_the_new_one_and_then_no_plain_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)
    made = small(tmp_path / "made")
    before = tree(made)
    erase = partial(ran, "erase")
    new = shutil.copytree(made, tmp_path / "new")
    assert erase(new, "--key", "customer-4711", "--yes").code == 3
    after = without_rmqctl(without_times(tree(new)))
    assert files_with(new, SECRETS) == []
    seen = set()

    def check(system: FaultySystem) -> None:
        root = system.root
        state = states(root)[-1] if states(root) else None
        left = without_rmqctl(without_times(tree(root)))
        seen.add((state, left == after))
        if state is JournalState.BEGUN:
            assert ran("undo", root, "--yes").code == 0
            assert with_times(root) == {name: of for name, of in before.items() if name != "."}
        else:
            assert left | {"lock": b"lock"} in (after | {"lock": b"lock"}, without_times(before) | {"lock": b"lock"})
        assert erase(root, "--key", "customer-4711", "--yes").code in (0, 3)
        assert files_with(root, SECRETS) == []
        assert without_rmqctl(without_times(tree(root))) == after
        assert not [path for path in (root / ".rmqctl").rglob("*") if path.is_file()]

    def prepare(root: Path) -> None:
        shutil.copytree(made, root)

    def prepare_kept(root: Path) -> None:
        prepare(root)
        assert erase(root, "--key", "customer-4711", "--keep-undo", "--yes").code == 3

    drop = partial(ran, "erase", "--key", "customer-4711", "--drop-journals", "--yes")

    def check_dropped(system: FaultySystem) -> None:
        if JournalState.BEGUN in states(system.root):
            assert ran("undo", system.root, "--yes").code == 0
        assert drop(system.root).code in (0, 3)
        assert files_with(system.root, SECRETS) == []
        assert without_rmqctl(without_times(tree(system.root))) == after

    for fault in (Fault.CRASH_BEFORE, Fault.CRASH_WITHIN):
        crash_points(tmp_path, fault, prepare, lambda root: erase(root, "--key", "customer-4711", "--yes"), check)
        crash_points(tmp_path, fault, prepare_kept, drop, check_dropped)
    assert {(JournalState.BEGUN, False), (None, True), (JournalState.NOT_BEGUN, True)} <= seen
