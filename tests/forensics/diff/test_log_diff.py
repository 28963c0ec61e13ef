"""What is changed in a copy is found, at its records; what is equal is not named."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.forensics.diff.log_diff import Range, limits_of, log_differences
from rmqctl.format.message import Message
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import Rmqctl, tree_hash, unpack


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("497-basic", tmp_path_factory.mktemp("whole"))


def differences(a: Path, b: Path) -> list[Range]:
    stores = [ReadOnlyStore(path) for path in (a, b)]
    logs = [store.commit_log for store in stores]
    found = list(log_differences(logs[0], logs[1], (limits_of(logs[0], 1), limits_of(logs[1], 1))))
    for store in stores:
        store.close()
    return found


def copied(root: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(root, to)
    return to


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_each_changed_byte_is_in_a_range_of_its_record(root: Path, tmp_path: Path, data: st.DataObject) -> None:
    copy = copied(root, tmp_path / "copy")
    store = ReadOnlyStore(root)
    messages = [item for item in store.commit_log.scan() if isinstance(item, Message)]
    store.close()
    hit = data.draw(st.lists(st.sampled_from(messages), min_size=1, max_size=5, unique=True))
    for message in hit:
        file = next(
            file
            for file in sorted((copy / "commitlog").iterdir(), reverse=True)
            if int(file.name) <= message.physical_offset
        )
        content = bytearray(file.read_bytes())
        begin = message.physical_offset - int(file.name)
        content[begin + data.draw(st.integers(4, message.size - 1))] ^= data.draw(st.integers(1, 255))
        file.write_bytes(content)

    found = differences(root, copy)
    assert all(one.is_divergence for one in found)
    assert all(one.end <= two.begin for one, two in pairwise(found))
    named = {at for one in found for at in range(one.begin, one.end)}
    assert named == {at for message in hit for at in range(message.physical_offset, message.end)}
    mirrored = {"damaged-in-b": "damaged-in-a", "missing-in-b": "missing-in-a", "placeholder-in-b": "placeholder-in-a"}
    assert differences(copy, root) == [one._replace(kind=mirrored.get(one.kind, one.kind)) for one in found]


def test_the_messages_of_a_longer_log_make_the_shorter_one_equal(root: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    copy = copied(root, tmp_path / "copy")
    assert (document := rmqctl("diff", root, copy, "-o", "json").document())["same"]
    assert document["firstDivergence"] is None
    store = ReadOnlyStore(root)
    messages = [item for item in store.commit_log.scan() if isinstance(item, Message)]
    store.close()
    cut = messages[-7].physical_offset
    assert rmqctl("truncate", copy, "--to", cut, "--yes").code == 3

    hash_before = tree_hash(root), tree_hash(copy)
    result = rmqctl("diff", root, copy, "-o", "json")
    document = result.document()
    assert (result.code, document["same"], document["firstDivergence"]) == (1, False, None)
    assert document["behind"] == messages[-1].end - cut
    assert [(one["begin"], one["end"], one["kind"]) for one in document["ranges"]] == [
        (cut, messages[-1].end, "behind-in-b")
    ]
    assert rmqctl("diff", copy, root, "-o", "json").document()["behind"] == -document["behind"]
    rows = rmqctl("diff", root, copy, "--messages").rows()
    assert [row["physicalOffset"] for row in rows] == [message.physical_offset for message in messages[-7:]]
    assert rmqctl("diff", copy, root, "--messages").rows() == []
    assert (tree_hash(root), tree_hash(copy)) == hash_before

    lines = tmp_path / "lines.jsonl"
    lines.write_text(rmqctl("diff", root, copy, "--messages").out)
    assert rmqctl("append", copy, "--from", lines).code == 0
    assert rmqctl("diff", root, copy, "--messages").rows() == []


def test_a_missing_file_and_other_parts_are_named(root: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    copy = copied(root, tmp_path / "copy")
    files = sorted((copy / "commitlog").iterdir())
    begin, end = int(files[1].name), int(files[2].name)
    files[1].unlink()
    (copy / "checkpoint").unlink()
    queue = next((copy / "consumequeue").rglob("0" * 20))
    queue.write_bytes(b"\0" * 20 + queue.read_bytes()[20:])
    document = rmqctl("diff", root, copy, "-o", "json").document()
    assert document["ranges"] == [{"begin": begin, "end": end, "kind": "missing-in-b"}]
    assert document["firstDivergence"] == begin
    topic, queue_id = queue.parts[-3:-1]
    assert {one["path"] for one in document["other"]} == {"checkpoint", f"consumequeue/{topic}/{queue_id}"}


def test_a_message_that_is_cut_in_two_is_among_the_missing_ones(root: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    copy = copied(root, tmp_path / "copy")
    store = ReadOnlyStore(root)
    message = [item for item in store.commit_log.scan() if isinstance(item, Message)][-3]
    store.close()
    last = max((copy / "commitlog").iterdir())
    content = last.read_bytes()
    half = message.physical_offset - int(last.name) + message.size // 2
    last.write_bytes(content[:half] + bytes(len(content) - half))
    document = rmqctl("diff", root, copy, "-o", "json").document()
    (one,) = document["ranges"]
    assert (one["begin"], document["behind"]) == (message.physical_offset, one["end"] - one["begin"])
    assert len(rmqctl("diff", root, copy, "--messages").rows()) == 3


def test_what_cannot_be_read_is_not_said_to_be_the_same(root: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    copy, other = copied(root, tmp_path / "copy"), copied(root, tmp_path / "other")
    for store in (copy, other):
        (store / "config" / "topics.json").write_text("{a")
        with max((store / "index").iterdir()).open("r+b") as file:
            file.truncate(20 * 1024**3)
            file.seek(36)
            file.write(b"\x7f\xff\xff\xff")
        (store / "timerlog").mkdir()
        (store / "timerlog" / ("0" * 20)).write_bytes(b"1")
    result = rmqctl("diff", copy, other, "-o", "json")
    document = result.document()
    assert (result.code, document["same"], document["notCompared"]) == (4, False, ["timerlog"])
    said = {one["path"]: one["what"] for one in document["other"]}
    assert said == {"config/topics.json": "cannot be read in A and B", "index": "cannot be read in A and B"}


def test_placeholders_and_damage_are_no_messages(root: Path, tmp_path: Path, rmqctl: Rmqctl) -> None:
    copy = copied(root, tmp_path / "copy")
    with min((copy / "commitlog").iterdir()).open("r+b") as file:
        file.seek(4000)
        file.write(b"\xff" * 600)
    result = rmqctl("diff", copy, root, "--messages")
    assert (result.code, result.out, "what it had there is not known" in result.err) == (4, "", True)
    assert rmqctl("recover", copy, "--keep-going", "--yes").code == 3
    result = rmqctl("diff", copy, root, "--messages")
    assert (result.code, result.out, "of `rmqctl recover` in A left out" in result.err) == (0, "", True)
    assert len(rmqctl("diff", root, copy, "--messages").rows()) > 1
