"""Changes of single values in fastjson's dialect: every other byte stays as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.store.config.fastjson import fastjson_loads, plain_json
from rmqctl.store.config.fastjson_edit import with_members
from tests.conftest import unpack

OF_4_9 = '{\n\t"offsetTable":{\n\t\t"t@a":{0:375,1:375\n\t\t},\n\t\t"t@b":{0:1\n\t\t}\n\t}\n}'
OF_5_5 = '{\n\t"offsetTable":{\n\t\t"t@a":{\n\t\t\t0:375,\n\t\t\t1:375\n\t\t}\n\t}\n}'
BY_HAND = '{ "x" : [1, {"offsetTable": "}\\""}] ,\r\n "offsetTable":{"t@a": {"0": 375 , 1:375}, "u@a":null}, "y":-1.50}'


@pytest.mark.parametrize("text", [OF_4_9, OF_5_5, BY_HAND])
def test_one_number_is_replaced_and_no_other_byte(text: str) -> None:
    changed = with_members(text, ("offsetTable", "t@a"), {0: 5})
    assert changed == text.replace("375", "5", 1)
    assert fastjson_loads(changed)["offsetTable"]["t@a"] == {"0": 5, "1": 375}


@pytest.mark.parametrize(
    ("text", "added"),
    [
        (OF_4_9, OF_4_9.replace(",1:375", ",1:375,2:7")),
        (OF_5_5, OF_5_5.replace("\n\t\t\t1:375", "\n\t\t\t1:375,\n\t\t\t2:7")),
        (BY_HAND, BY_HAND.replace(" 1:375", " 1:375, 2:7")),
    ],
)
def test_a_number_is_added_in_the_form_of_the_others(text: str, added: str) -> None:
    assert with_members(text, ("offsetTable", "t@a"), {2: 7}) == added


@pytest.mark.parametrize(
    ("text", "entry"),
    [(OF_4_9, '"new@a":{0:5,1:6\n\t\t}'), (OF_5_5, '"new@a":{\n\t\t\t0:5,\n\t\t\t1:6\n\t\t}')],
)
def test_an_entry_is_added_in_the_form_of_the_others(text: str, entry: str) -> None:
    end = "\n\t}\n}"
    expected = text.removesuffix(end) + f",\n\t\t{entry}{end}"
    assert with_members(text, ("offsetTable", "new@a"), {0: 5, 1: 6}) == expected


def test_objects_of_the_path_are_added() -> None:
    expected = OF_4_9.replace('"t@a":{0:375,1:375\n\t\t},\n\t\t"t@b"', '"t@b"')
    assert with_members("{\n}", ("offsetTable", "t@b"), {0: 1}) == expected
    assert with_members('{"offsetTable":null}', ("offsetTable", "t@b"), {0: 1}).startswith(
        '{"offsetTable":{\n\t\t"t@b"'
    )


def test_of_a_key_that_stands_twice_the_last_one_counts() -> None:
    assert with_members('{"a":1,"a":2}', (), {"a": 3}) == '{"a":1,"a":3}'


KEYS = st.sampled_from(["a", "b", "", '"', "\\", "{", "é", "1"])
VALUES = st.recursive(
    st.sampled_from([None, True, -5, "}", '\\"']),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=4,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=3)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(OBJECTS, st.lists(KEYS, max_size=3), OBJECTS, st.sampled_from([None, 1, "\t"]))
def test_any_object_is_changed_as_a_dict_is(
    before: dict[str, object], path: list[str], members: dict[str, object], indent: int | str | None
) -> None:
    expected = json.loads(json.dumps(before))
    place = expected
    for key in path:
        if not isinstance(place.get(key), dict):
            if not members:
                return
            place[key] = {}
        place = place[key]
    place.update(members)
    text = json.dumps(before, ensure_ascii=False, indent=indent)
    assert plain_json(text) == text
    for written in (text, f"/* by hand */{text[:-1]}/**/}}"):
        assert fastjson_loads(with_members(written, path, members)) == expected


@pytest.mark.parametrize("name", ["broker-497", "broker-533", "broker-550"])
def test_the_file_of_a_real_broker_is_the_same_when_it_is_changed_back(name: str, tmp_path: Path) -> None:
    text = (unpack(name, tmp_path) / "config" / "consumerOffset.json").read_text()
    before = {int(key): offset for key, offset in fastjson_loads(text)["offsetTable"]["orders@billing"].items()}
    changed = with_members(text, ("offsetTable", "orders@billing"), dict.fromkeys(before, 7))
    assert fastjson_loads(changed)["offsetTable"]["orders@billing"] == dict.fromkeys("0123", 7)
    assert with_members(changed, ("offsetTable", "orders@billing"), before) == text
