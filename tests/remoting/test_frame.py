"""The frames of the RPC, in both forms; the bytes of the first test are from runs of 4.9.7 and 5.3.3."""

from __future__ import annotations

import json
import socket
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.remoting.frame import IS_ONEWAY, RemotingCommand, SerializeType, decode, receive_command

INTS = st.integers(-(2**31), 2**31 - 1)
SHORTS = st.integers(-(2**15), 2**15 - 1)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
COMMANDS = st.builds(
    RemotingCommand,
    SHORTS,
    st.dictionaries(TEXTS, TEXTS, max_size=4),
    st.binary(max_size=50),
    TEXTS,
    INTS,
    INTS,
    SHORTS,
    st.sampled_from(SerializeType),
)


def test_a_request_is_the_one_that_real_brokers_answered() -> None:
    request = RemotingCommand(21, opaque=7, serialize_type=SerializeType.ROCKETMQ)
    sent = bytes.fromhex("0000001901000015 0015 07 0000 00000007 00000000 00000000 00000000")
    assert request.encode() == sent
    assert decode(sent[4:]) == request


def test_a_registration_of_a_real_slave_is_read() -> None:
    header = (
        b'{"code":103,"extFields":{"brokerId":"1","brokerName":"broker-a","compressed":"false"},"flag":0,'
        b'"language":"JAVA","opaque":0,"serializeTypeCurrentRPC":"JSON","version":407}'
    )
    command = decode(struct.pack(">i", len(header)) + header + b"{}")
    assert (command.code, command.body, command.version, command.wants_answer) == (103, b"{}", 407, True)
    assert command.ext_fields == {"brokerId": "1", "brokerName": "broker-a", "compressed": "false"}


@given(COMMANDS)
def test_each_command_is_read_as_it_was_written(command: RemotingCommand) -> None:
    frame = command.encode()
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    assert decode(frame[4:]) == command


@given(COMMANDS, COMMANDS)
def test_an_answer_has_the_number_and_the_form_of_its_request(request: RemotingCommand, said: RemotingCommand) -> None:
    answer = request.answered_by(said)
    assert answer.is_answer
    assert not answer.wants_answer
    assert (answer.opaque, answer.serialize_type) == (request.opaque, request.serialize_type)
    assert (answer.code, answer.ext_fields, answer.body) == (said.code, said.ext_fields, said.body)


def test_a_oneway_request_wants_no_answer() -> None:
    assert not RemotingCommand(40, flag=IS_ONEWAY).wants_answer


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (RemotingCommand(2**15, serialize_type=SerializeType.ROCKETMQ), "cannot hold"),
        (RemotingCommand(1, {"k" * 2**15: ""}, serialize_type=SerializeType.ROCKETMQ), "cannot hold"),
        (RemotingCommand(1, {"k": "v" * 2**24}), "too large"),
    ],
)
def test_a_command_that_does_not_fit_is_refused(command: RemotingCommand, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        command.encode()


def json_frame(header: object) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">i", len(text)) + text


def binary_frame(header: str) -> bytes:
    raw = bytes.fromhex(header)
    return struct.pack(">i", 1 << 24 | len(raw)) + raw


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        (struct.pack(">i", 5) + b"{}", "length of 5; the frame has 2"),
        (struct.pack(">i", 2 << 24 | 2) + b"{}", "form 2"),
        (struct.pack(">I", 0xFF000002) + b"{}", "form 255"),
        (json_frame(b"\xff{}"), "utf-8"),
        (json_frame(b""), "Expecting value"),
        (json_frame(b"[" * 100_001), "more than 100000"),
        (json_frame(b"[" * 99_000), "nested"),
        (json_frame([]), "not a JSON object"),
        (json_frame({}), "code of the header"),
        (json_frame({"code": "21"}), "code of the header"),
        (json_frame({"code": True}), "code of the header"),
        (json_frame({"code": 2**31}), "code of the header"),
        (json_frame({"code": 1, "opaque": None}), "opaque of the header"),
        (json_frame({"code": 1, "extFields": [1]}), "extFields"),
        (json_frame({"code": 1, "extFields": {"a": 1}}), "extFields"),
        (json_frame({"code": 1, "remark": 5}), "remark"),
        (binary_frame("0015"), "at least 17"),
        (binary_frame("0015 07 0000 00000007 00000000 7fffffff"), "2147483647"),
        (binary_frame("0015 07 0000 00000007 00000000 ffffffff"), "length of -1"),
        (binary_frame("0015 07 0000 00000007 00000000 00000000"), "ends inside a length"),
        (binary_frame("0015 07 0000 00000007 00000000 00000000 00000001"), "fields have a length of 1"),
        (binary_frame("0015 07 0000 00000007 00000000 00000000 ffffffff 61"), "fields have a length of -1"),
        (binary_frame("0015 07 0000 00000007 00000000 00000000 00000001 61"), "ends inside a length"),
        (binary_frame("0015 07 0000 00000007 00000000 00000000 00000004 ffff6161"), "length of -1"),
    ],
)
def test_a_frame_that_is_not_valid_is_refused_with_its_reason(frame: bytes, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        decode(frame)


def received(sent: bytes, length_max: int = 1000) -> RemotingCommand:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        return receive_command(ours, length_max, time.monotonic() + 5)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 3, 1001, 2**31 - 1])
def test_a_length_out_of_bounds_is_refused_before_its_bytes_are_read(length: int) -> None:
    with pytest.raises(ValueError, match="4 to 1000 bytes are possible"):
        received(struct.pack(">i", length))


def test_a_frame_that_ends_early_is_told_from_a_closed_connection() -> None:
    frame = RemotingCommand(1).encode()
    assert received(frame).code == 1
    for end in range(len(frame)):
        with pytest.raises(EOFError) as error:
            received(frame[:end])
        assert error.value.args == (end,)


def test_a_peer_that_sends_a_byte_from_time_to_time_is_not_waited_for() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(struct.pack(">i", 100) + b"abc")
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            receive_command(ours, 1000, begin + 0.2)
        assert time.monotonic() - begin < 2
