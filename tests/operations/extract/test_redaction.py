"""Values become hashes of the same length, and JSON stays JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.format.message import Message
from rmqctl.format.properties import decode
from rmqctl.format.sys_flag import INNER_BATCH
from rmqctl.operations.extract.redaction import Redaction

KEY = b"k" * 32
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def redacted(body: bytes, *what: str, sys_flag: int = 0, raw: bytes = b"") -> Message:
    plain = Message(0, 0, 0, 0, 0, 0, 0, 0, sys_flag, 0, b"", 0, b"", 0, 0, memoryview(body), b"t", raw)
    return Redaction(what, KEY).of(plain)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(JSON, st.booleans())
def test_json_stays_json(value: object, ascii_only: bool) -> None:
    body = json.dumps({"a": value, "b": "keep"}, ensure_ascii=ascii_only).encode(errors="replace")
    for what in (("body",), ("json:a",), ("json:*.*",), ("json:a", "json:b")):
        made = bytes(redacted(body, *what).body)
        assert len(made) == len(body)
        assert json.loads(made) is not None
        if what == ("json:a",):
            assert json.loads(made).keys() == {"a", "b"}
            assert json.loads(made)["b"] == "keep"


def test_only_the_path_is_redacted() -> None:
    body = (
        b'{"customer": {"email": "ann@x.org", "vip": true}, "items": [{"card": 4711}, {"card": 4711}], '
        b'"note": "ann@x.org"}'
    )
    made = json.loads(bytes(redacted(body, "json:customer.email", "json:items.card").body))
    (first, second), email = made["items"], made["customer"]["email"]
    assert (made["note"], made["customer"]["vip"], len(email)) == ("ann@x.org", True, 9)
    assert first == second != {"card": 4711}
    assert 1000 <= first["card"] <= 9999
    assert email.isalnum()
    assert bytes(redacted(b"no JSON", "json:a").body) not in (b"no JSON", b"")


def test_equal_values_stay_equal_by_word() -> None:
    raw = b"KEYS\x01o1 o2\x02UNIQ_KEY\x01o1\x02DELAY\x013\x02who\x01ann\x02"
    found = decode(redacted(b"body", "properties", raw=raw).properties_bytes)
    assert found["KEYS"].split(" ")[0] == found["UNIQ_KEY"] != "o1"
    assert (found["DELAY"], len(found["KEYS"])) == ("3", 5)
    assert found["who"] not in ("", "ann")


def test_the_messages_of_a_batch_are_redacted() -> None:
    def inner(body: bytes, raw: bytes) -> bytes:
        head = b"".join(number.to_bytes(4, "big") for number in (22 + len(body) + len(raw), 0, 0, 0, len(body)))
        return head + body + len(raw).to_bytes(2, "big") + raw

    batch = inner(b"secret", b"KEYS\x01key-1\x02") + inner(b"", b"")
    made = bytes(redacted(batch, "body", "properties", sys_flag=INNER_BATCH).body)
    assert (len(made), made[:20], made[-22:]) == (len(batch), batch[:20], batch[-22:])
    assert b"secret" not in made
    assert b"key-1" not in made
    assert made != bytes(redacted(batch[:-1], "body", sys_flag=INNER_BATCH).body)


@pytest.mark.parametrize("what", ["bodies", "json:", "json:a..b"])
def test_other_words_are_refused(what: str) -> None:
    with pytest.raises(ValueError, match="is none of body"):
        Redaction([what], KEY)
