"""The frames of RocketMQ's RPC.

A frame consists of a length, a header and a body. All numbers are big-endian:

{frame}

The highest byte of `headerType` gives the form of the header, JSON or ROCKETMQ, and the lower three bytes its length.
An answer has a header of the same form as the request.

Form 0, JSON: an object with `code`, `language`, `version`, `opaque`, `flag`, `remark`, `extFields` and
`serializeTypeCurrentRPC`. Keys that rmqctl does not know are ignored.

Form 1, ROCKETMQ:

{header}

After the fixed part, a ROCKETMQ header has the remark, 4 bytes with the length of all fields, and the fields: each has
the length of the key (2 bytes), the key, the length of the value (4 bytes), and the value. All text is UTF-8.

Bit 0 of `flag` marks an answer. Bit 1 marks a oneway request, which gets no answer.

The length of a valid frame is at least 4, and at most the reader's limit. Its header ends inside the frame, and has the
form JSON or ROCKETMQ. All parts of a ROCKETMQ header lie inside the header, and the last one ends at its end. Numbers
are in the range of Java's int, in a ROCKETMQ header code and version in that of Java's short. Text is UTF-8, and all
values of extFields are text.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from rmqctl.format.body import bounded_json
from rmqctl.format.layout import Field, Layout
from rmqctl.remoting.receive import receive_exactly

FRAME_LENGTH = Field("length", "i", "bytes of the frame after this field")
HEADER_TYPE = Field("headerType", "i", "form of the header << 24 | bytes of the header")
FRAME = Layout("frame", (FRAME_LENGTH, HEADER_TYPE))
ROCKETMQ_HEADER = Layout(
    "ROCKETMQ header",
    (
        Field("code", "h", "of the request, or of the answer: 0 is success"),
        Field("language", "b", "7: OTHER"),
        Field("version", "h", "RocketMQ's number of its version, for example 407"),
        Field("opaque", "i", "number of the request; the answer has the same number"),
        Field("flag", "i"),
        Field("remarkLength", "i", "bytes"),
    ),
)
FRAME_LENGTH_MAX = 16 * 1024 * 1024  # com.rocketmq.remoting.frameMaxLength: a broker rejects longer frames
HEADER_LENGTH_MAX = 0xFFFFFF
HEADER_SIGNS_MAX = 100_000  # in a JSON header
IS_ANSWER, IS_ONEWAY = 1, 2
OTHER_LANGUAGE = 7
NO_FIELDS: Mapping[str, str] = MappingProxyType({})
_LENGTH_SIZE = 4
_INT = range(-(2**31), 2**31)
__doc__ = (__doc__ or "").format(frame=FRAME.table(), header=ROCKETMQ_HEADER.table())


class SerializeType(IntEnum):
    """The form of a frame's header."""

    JSON = 0
    ROCKETMQ = 1


class RemotingCommand(NamedTuple):
    """A request or an answer."""

    code: int
    ext_fields: Mapping[str, str] = NO_FIELDS
    body: bytes = b""
    remark: str = ""
    opaque: int = 0
    flag: int = 0
    version: int = 0
    serialize_type: SerializeType = SerializeType.JSON

    @property
    def is_answer(self) -> bool:
        """Return whether the command is an answer."""
        return bool(self.flag & IS_ANSWER)

    @property
    def wants_answer(self) -> bool:
        """Return whether the peer waits for an answer to this request."""
        return not self.flag & (IS_ANSWER | IS_ONEWAY)

    def answered_by(self, answer: RemotingCommand) -> RemotingCommand:
        """Return `answer` with the `opaque` and the header form of this request."""
        return answer._replace(opaque=self.opaque, flag=IS_ANSWER, serialize_type=self.serialize_type)

    def encode(self) -> bytes:
        """Return the command as a frame.

        Raises ValueError if a number or a length does not fit in its field.
        """
        header = self._json_header() if self.serialize_type is SerializeType.JSON else self._rocketmq_header()
        length = _LENGTH_SIZE + len(header) + len(self.body)
        if len(header) > HEADER_LENGTH_MAX or length not in _INT:
            raise ValueError(f"a frame of {length} bytes with a header of {len(header)} bytes is too large")
        return FRAME.struct.pack(length, self.serialize_type << 24 | len(header)) + header + self.body

    def _json_header(self) -> bytes:
        header: dict[str, Any] = {
            "code": self.code,
            "language": "OTHER",
            "version": self.version,
            "opaque": self.opaque,
            "flag": self.flag,
            "extFields": dict(self.ext_fields),
            "serializeTypeCurrentRPC": "JSON",
        }
        if self.remark:
            header["remark"] = self.remark
        return json.dumps(header, separators=(",", ":")).encode("ascii")

    def _rocketmq_header(self) -> bytes:
        remark = self.remark.encode()
        pairs = [(key.encode(), value.encode()) for key, value in self.ext_fields.items()]
        try:
            fields = b"".join(
                struct.pack(f">h{len(key)}si{len(value)}s", len(key), key, len(value), value) for key, value in pairs
            )
            start = ROCKETMQ_HEADER.struct.pack(
                self.code, OTHER_LANGUAGE, self.version, self.opaque, self.flag, len(remark)
            )
        except struct.error as error:
            raise ValueError(f"a ROCKETMQ header cannot hold the command: {error}") from None
        return start + remark + struct.pack(">i", len(fields)) + fields


def receive_command(connection: socket.socket, length_max: int, deadline: float) -> RemotingCommand:
    """Return the next command that a peer sends.

    `length_max` is the largest length of a frame in bytes. `deadline` is a time in seconds, as `time.monotonic` returns
    it. Raises ValueError if the frame is not valid, and the errors of `receive_exactly`.
    """
    (length,) = struct.unpack(">i", receive_exactly(connection, _LENGTH_SIZE, deadline))
    if not _LENGTH_SIZE <= length <= length_max:
        raise ValueError(f"the frame has a length of {length}; {_LENGTH_SIZE} to {length_max} bytes are possible")
    try:
        frame = receive_exactly(connection, length, deadline)
    except EOFError as error:
        raise EOFError(_LENGTH_SIZE + error.args[0]) from None
    return decode(frame)


def decode(frame: bytes | bytearray) -> RemotingCommand:
    """Return the command of a frame, given without its length field.

    Raises ValueError if the frame is not valid.
    """
    (header_type,) = struct.unpack_from(">I", frame)
    form, length = header_type >> 24, header_type & HEADER_LENGTH_MAX
    end = _LENGTH_SIZE + length
    if end > len(frame):
        raise ValueError(f"the header has a length of {length}; the frame has {len(frame) - _LENGTH_SIZE} bytes")
    if form not in set(SerializeType):
        raise ValueError(f"the header has the form {form}; 0 (JSON) and 1 (ROCKETMQ) are possible")
    header, body = bytes(frame[_LENGTH_SIZE:end]), bytes(frame[end:])
    command = _decode_json(header) if form == SerializeType.JSON else _decode_rocketmq(header)
    return command._replace(body=body)


def _decode_json(header: bytes) -> RemotingCommand:
    found = bounded_json.loads(header.decode(), HEADER_SIGNS_MAX)
    if not isinstance(found, dict):
        raise ValueError("the header is not a JSON object")
    fields = found.get("extFields") or {}
    if not isinstance(fields, dict) or not all(isinstance(value, str) for value in fields.values()):
        raise ValueError("extFields of the header is not an object of texts")
    remark = found.get("remark") or ""
    if not isinstance(remark, str):
        raise ValueError("remark of the header is not a text")
    opaque, flag, version = (_java_int(name, found.get(name, 0)) for name in ("opaque", "flag", "version"))
    return RemotingCommand(_java_int("code", found.get("code")), fields, b"", remark, opaque, flag, version)


def _java_int(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value not in _INT:
        raise ValueError(f"{name} of the header is not a number of 32 bits")
    return value


def _decode_rocketmq(header: bytes) -> RemotingCommand:
    if len(header) < ROCKETMQ_HEADER.size:
        raise ValueError(f"the header has {len(header)} bytes; at least {ROCKETMQ_HEADER.size} are needed")
    code, _, version, opaque, flag, remark_length = ROCKETMQ_HEADER.struct.unpack_from(header)
    remark, at = _text(header, ROCKETMQ_HEADER.size, remark_length)
    fields_length, at = _length(header, at, ">i")
    if at + fields_length != len(header):
        raise ValueError(f"the fields have a length of {fields_length}; the header has {len(header) - at} bytes left")
    fields = {}
    while at < len(header):
        length, at = _length(header, at, ">h")
        key, at = _text(header, at, length)
        length, at = _length(header, at, ">i")
        fields[key], at = _text(header, at, length)
    return RemotingCommand(code, fields, b"", remark, opaque, flag, version, SerializeType.ROCKETMQ)


def _length(header: bytes, at: int, code: str) -> tuple[int, int]:
    """Return the length field at a position, and the position after the field."""
    end = at + struct.calcsize(code)
    if end > len(header):
        raise ValueError("the header ends inside a length")
    return struct.unpack_from(code, header, at)[0], end


def _text(header: bytes, at: int, length: int) -> tuple[str, int]:
    """Return the text at a position, and the position after the text."""
    if not 0 <= length <= len(header) - at:
        raise ValueError(f"a text in the header has a length of {length}; {len(header) - at} bytes are left")
    return header[at : at + length].decode(), at + length
