from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqctl.format.properties import hash_code
from rmqctl.store.config.fastjson import fastjson_bytes, fastjson_dumps, fastjson_loads
from tests.support.property_settings import PROPERTY


def reference_hash(text: str) -> int:
    """s[0]*31^(n-1) + s[1]*31^(n-2) + ... over UTF-16 code units, as the Java API states it, wrapped
    at the very end.
    """
    raw = text.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(raw[i : i + 2], "big") for i in range(0, len(raw), 2)]
    total: int = sum(unit * 31 ** (len(units) - 1 - i) for i, unit in enumerate(units)) % 2**32
    return total - 2**32 if total >= 2**31 else total


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("Hello, World!", 1498789909),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 1772899),
    ],
)
def test_hash_code_is_javas(text: str, code: int) -> None:
    assert hash_code(text) == code


@PROPERTY
@given(st.text(st.characters(), max_size=60))
def test_hash_code_agrees_with_the_definition(text: str) -> None:
    assert hash_code(text) == reference_hash(text)


@PROPERTY
@given(st.text(max_size=60))
def test_hash_code_is_a_32_bit_integer(text: str) -> None:
    assert -(2**31) <= hash_code(text) < 2**31


def test_a_lone_surrogate_has_a_hash_code() -> None:
    assert hash_code("\ud800") == 0xD800


def test_unquoted_integer_keys_are_read_as_strings() -> None:
    text = '{\n\t"offsetTable":{"OrderPaid@billing":{0:375,1:375,-2 : 7}}\n}'
    assert fastjson_loads(text) == {"offsetTable": {"OrderPaid@billing": {"0": 375, "1": 375, "-2": 7}}}


def test_text_in_a_string_that_looks_like_a_bare_key_is_left_alone() -> None:
    assert fastjson_loads(r'{"a {0:1, \"2:3\" ":"{4:5}",6:"7:8"}') == {'a {0:1, "2:3" ': "{4:5}", "6": "7:8"}


def test_numbers_that_are_values_stay_numbers() -> None:
    assert fastjson_loads('{"a":[1,-2,3.5,1e3],0:-7}') == {"a": [1, -2, 3.5, 1000.0], "0": -7}


def test_what_people_write_and_all_brokers_read() -> None:
    """As ConsumerOffsetManager.decode of 4.9.7, 5.3.3 and 5.5.0 reads it."""
    written = '\ufeff// by hand\n{\'t@a\':{0:375,},/* "t@b":{0:1}, */\n"t//@\'c,}":[1,\n]}// end\0\0'
    assert fastjson_loads(written) == {"t@a": {"0": 375}, "t//@'c,}": [1]}


def test_a_string_that_ends_in_a_backslash_ends_there() -> None:
    assert fastjson_loads(r'{"a":"\\",0:1}') == {"a": "\\", "0": 1}


@pytest.mark.parametrize(
    "text", ["", "{", '{"a"', '{"a":', '{"a":1', '{0:"', "{a:1}", "{1.5:2}", "{'a\"':1}", '{"a":\\}', "\0", "nonsense"]
)
def test_what_is_no_json_is_a_value_error(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        fastjson_loads(text)


@pytest.mark.parametrize("opening", ["[", '{"a":', "{0:"])
def test_deep_nesting_is_a_value_error(opening: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        fastjson_loads(opening * 100_000)


def dumped(value: Any) -> str:
    """JSON with integer keys unquoted, as fastjson writes a Map<Integer, ...>."""
    if isinstance(value, dict):
        pairs = (f"{key if isinstance(key, int) else json.dumps(key)}:{dumped(child)}" for key, child in value.items())
        return "{" + ",\n\t".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dumped, value)) + "]"
    return json.dumps(value)


def keys_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): keys_as_text(child) for key, child in value.items()}
    return [keys_as_text(child) for child in value] if isinstance(value, list) else value


LONGS = st.integers(-(2**63), 2**63 - 1)
SCALARS = st.none() | st.booleans() | LONGS | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12)
INT_KEYED = st.dictionaries(st.integers(), SCALARS, max_size=4)
DOCUMENTS = st.recursive(
    SCALARS | INT_KEYED,
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(st.text('ab:,{}"\\01 ', max_size=8), children, max_size=4)
        | st.dictionaries(st.integers(), children, max_size=4)
    ),
    max_leaves=12,
)


@PROPERTY
@given(DOCUMENTS)
def test_what_fastjson_writes_is_read_back(document: Any) -> None:
    assert fastjson_loads(dumped(document)) == keys_as_text(document)


@PROPERTY
@given(st.text('{}[]":,\\01-.e \n"tnu', max_size=40))
def test_random_text_is_json_or_a_value_error(text: str) -> None:
    try:
        found = fastjson_loads(text)
    except ValueError:
        return
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"offsetTable": {1: 13, 2: 13}}, '{\n\t"offsetTable":{1:13,2:13\n\t}\n}'),
        ({"offsetTable": {}}, '{\n\t"offsetTable":{}\n}'),
        ({"a": True, "b": {"x": "\u00e9", "y": 1}}, '{\n\t"a":true,\n\t"b":{\n\t\t"x":"\u00e9",\n\t\t"y":1\n\t}\n}'),
    ],
)
def test_json_is_written_with_fastjsons_tabs(value: dict[str, Any], text: str) -> None:
    assert fastjson_dumps(value) == text
    assert fastjson_loads(text) == json.loads(json.dumps(value))


@pytest.mark.parametrize("charset", ["utf-8", "latin-1", "ascii"])
@pytest.mark.parametrize("name", ["caf\xe9", "\u7ec4", "\U0001f600", "\ud800"])
def test_every_name_can_be_written_in_every_charset(name: str, charset: str) -> None:
    written = fastjson_bytes(fastjson_dumps({name: name}), charset)
    assert fastjson_loads(written.decode(charset)) == {name: name}
