"""One flipped bit at every byte of a log, and the log cut at every byte."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from rmqctl.forensics.verify import VerifyReport, verify
from rmqctl.format import message
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support.log_maker import BORN_V6, STORE_V6, V1, V2, Record, encode, sample_records, write_log

COUNT = 16
VARIANTS = {
    "v1": sample_records(COUNT),
    "v2": sample_records(COUNT, magic=V2),
    "ipv6": sample_records(COUNT, sys_flag=BORN_V6 | STORE_V6),
    "property-crc": sample_records(COUNT, property_crc=True),
}
# some bytes: of each record others, so that each byte of a field is among them
STEPS = [pytest.param(1, marks=pytest.mark.slow, id="each"), pytest.param(5, id="some")]
# what nothing in the log covers (format/message.py says so): name -> where in a record with IPv4 hosts
UNCOVERED = {
    "QUEUEID": range(12, 16),
    "FLAG": range(16, 20),
    "QUEUEOFFSET": range(20, 28),
    "SYSFLAG": range(36, 40),
    "BORNTIMESTAMP": range(40, 48),
    "BORNHOST": range(48, 56),
    "STORETIMESTAMP": range(56, 64),
    "STOREHOST": range(64, 72),
    "RECONSUMETIMES": range(72, 76),
    "PREPAREDTRANSACTIONOFFSET": range(76, 84),
}
V6_EXTRA = 12


def uncovered_bytes(record: Record) -> set[int]:
    """The bytes of a record, by position in it, in which a flip cannot be seen."""
    if record.property_crc:
        return set()
    moved = 0
    found: set[int] = set()
    for name, place in UNCOVERED.items():
        wide = (
            V6_EXTRA
            if (name == "BORNHOST" and record.sys_flag & BORN_V6)
            or (name == "STOREHOST" and record.sys_flag & STORE_V6)
            else 0
        )
        found |= set(range(place.start + moved, place.stop + moved + wide))
        moved += wide
    body_end = 88 + moved + len(record.body)
    topic_start = body_end + (1 if record.magic == V1 else 2)
    topic_end = topic_start + len(record.topic.encode())
    return (
        found | set(range(topic_start, topic_end)) | set(range(topic_end + 2, topic_end + 2 + len(record.properties)))
    )


def look(root: Path) -> VerifyReport:
    return verify(ReadOnlyStore(root), 1)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_a_flipped_bit_at_every_byte_is_found_where_anything_covers_it(variant: str, step: int, tmp_path: Path) -> None:
    records = VARIANTS[variant]
    data = write_log(tmp_path, records, file_size=65536, blank=True)
    path = tmp_path / "commitlog" / f"{0:020d}"
    assert not look(tmp_path).findings
    descriptor = os.open(path, os.O_RDWR)
    start = 0
    for number, record in enumerate(records):
        size = len(encode(record, start))
        unseen = uncovered_bytes(record)
        for at in {*range(number % step, size, step), size - 1}:
            position = start + at
            bit = 1 << (position % 8)
            if at == 39 and bit in (BORN_V6, STORE_V6):
                unseen = unseen - {at}  # the V6 bits move all that follows
            if at == size - 1 and data[position] ^ bit == 0:
                unseen = unseen - {at}  # PROPERTIES do not end in a zero byte
            os.pwrite(descriptor, bytes([data[position] ^ bit]), position)
            findings = look(tmp_path).findings
            assert bool(findings) != (at in unseen), f"byte {at} of the record at {start}, bit {bit}"
            if findings:
                finding = findings[0]
                assert finding.physical_offset == start
                assert finding.size is not None
                assert position < start + finding.size
            os.pwrite(descriptor, data[position : position + 1], position)
            unseen = uncovered_bytes(record)
        start += size
    for at in range(8):  # the blank
        os.pwrite(descriptor, bytes([data[start + at] ^ 1]), start + at)
        assert [finding.physical_offset for finding in look(tmp_path).findings] == [start]
        os.pwrite(descriptor, data[start + at : start + at + 1], start + at)
    os.close(descriptor)
    assert not look(tmp_path).findings


def test_the_documentation_lists_the_uncovered_fields() -> None:
    text = (
        (message.__doc__ or "")
        .split("a flipped bit in the following fields cannot", 1)[1]
        .split("`__CRC32#` covers", 1)[0]
    )
    for name in (*UNCOVERED, "TOPIC", "PROPERTIES"):
        assert name in text
    for covered in ("TOTALSIZE", "MAGICCODE", "BODYCRC", "PHYSICALOFFSET", "BODYLENGTH"):
        assert covered not in text


@pytest.mark.parametrize("step", STEPS)
def test_a_log_cut_at_every_byte_is_ok_up_to_its_last_whole_record(step: int, tmp_path: Path) -> None:
    records = sample_records(COUNT)
    ends = [0]
    for record in records:
        ends.append(ends[-1] + len(encode(record, ends[-1])))
    data = write_log(tmp_path, records, file_size=ends[-1] + 40, blank=True)
    path = tmp_path / "commitlog" / f"{0:020d}"
    sizes = {*range(0, len(data), step), *ends, *(end - 1 for end in ends[1:]), len(data)}
    for size in sorted(sizes, reverse=True):
        os.truncate(path, size)
        report = look(tmp_path)
        whole = max(end for end in ends if end <= size)
        assert report.summary.ok_up_to == (len(data) if size == len(data) else whole), f"cut at {size}"
        assert bool(report.findings) == (size != len(data))


def test_a_zero_tail_with_a_set_bit_is_found(tmp_path: Path) -> None:
    data = write_log(tmp_path, sample_records(3), file_size=4096)
    path = tmp_path / "commitlog" / f"{0:020d}"
    end = len(data.rstrip(b"\0"))
    for position in range(end + 1, 4096, 97):
        path.write_bytes(data[:position] + b"\x10" + data[position + 1 :])
        assert look(tmp_path).findings, f"a bit at {position}"


def test_records_behind_a_hole_are_still_found(tmp_path: Path) -> None:
    records = sample_records(3)
    first = len(encode(records[0], 0))
    second = len(encode(records[1], first))
    data = write_log(tmp_path, records, file_size=4096)
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(data[:first] + bytes(second) + data[first + second :])
    report = look(tmp_path)
    assert [(finding.code, finding.physical_offset, finding.size) for finding in report.findings] == [
        ("hole", first, second)
    ]
    assert report.summary.messages == 2
    assert (report.broker_stops_at, report.behind_damage_messages) == (first, 1)


def test_a_size_that_lies_is_damage_of_one_record(tmp_path: Path) -> None:
    data = write_log(tmp_path, sample_records(3), file_size=65536)
    for claim in (-1, -(2**31), 0x7FFFFFFF, 7, 90, 60000):
        (tmp_path / "commitlog" / f"{0:020d}").write_bytes(struct.pack(">i", claim) + data[4:])
        report = look(tmp_path)
        assert [finding.physical_offset for finding in report.findings] == [0]
        assert report.summary.messages == 2
