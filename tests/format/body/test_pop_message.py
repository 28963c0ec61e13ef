"""Bodies of POP's checkpoints and acknowledgements, as brokers of 5.0 to 5.5 write them."""

from __future__ import annotations

import msgspec
import pytest

from rmqctl.format.body.pop_message import decode


@pytest.mark.parametrize(
    ("body", "popped"),
    [
        (b'{"bm":0,"c":"g","d":[0,2],"n":2,"q":1,"so":5,"t":"orders"}', [5, 7]),
        (b'{"bm":0,"c":"g","n":3,"q":1,"so":5,"t":"orders"}', [5, 6, 7]),
        (b'{"bm":0,"c":"g","d":[],"n":1,"q":1,"so":5,"t":"orders"}', [5]),
    ],
)
def test_a_checkpoint_names_its_messages(body: bytes, popped: list[int]) -> None:
    found = decode("ck", body)
    assert (found.c, found.t, found.q) == ("g", "orders", 1)
    assert sorted(found.offsets()) == popped


@pytest.mark.parametrize(
    ("tag", "body", "acknowledged"),
    [
        ("ack", b'{"ao":5,"c":"g","pt":1,"q":1,"so":4,"t":"orders"}', [5]),
        ("bAck", b'{"ao":0,"aol":[6,8],"c":"g","pt":1,"q":1,"so":4,"t":"orders"}', [6, 8]),
    ],
)
def test_an_acknowledgement_names_its_messages(tag: str, body: bytes, acknowledged: list[int]) -> None:
    assert sorted(decode(tag, body).offsets()) == acknowledged


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 200 + b"]" * 200, b'{"c":"g","t":"t","q":1,"so":-1}', b"\xff"])
def test_other_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode("ck", body)
