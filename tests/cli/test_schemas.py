"""The JSON schemas: each verb has one, `rmqctl schema` prints it, and a key means the same in all of them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.conftest import GOLDEN_NAMES, Rmqctl, apply_damage, damage_cases, unpack

SCHEMAS = {
    each.name.removesuffix(".json"): json.loads(each.read_text())
    for each in files("rmqctl.cli").joinpath("schema").iterdir()
}
WORDS_OF_HASHDEEP = {("attest", "missing"), ("attest", "moved")}  # lists of files; recover and rebuild count by them
WITHOUT_DOCUMENT = {"explain", "completion", "warm-up", "schema", "job"}


def keys_of(schema: Any) -> Iterator[tuple[str, str]]:
    """The keys of a document with the JSON types of their values, null aside; integers are numbers."""
    if isinstance(schema, list):
        for inner in schema:
            yield from keys_of(inner)
    elif isinstance(schema, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict):
            for name, value in properties.items():
                yield from ((name, kind) for kind in kinds_of(value))
        for name, inner in schema.items():
            if name == "properties" and isinstance(inner, dict):
                for value in inner.values():
                    yield from keys_of(value)
            elif name != "required":
                yield from keys_of(inner)


def kinds_of(schema: dict[str, Any]) -> set[str]:
    if "oneOf" in schema or "anyOf" in schema:
        return set().union(*(kinds_of(inner) for inner in schema.get("oneOf") or schema["anyOf"]))
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return {"string" if isinstance(value, str) else "number" for value in values if value is not None}
    named = schema.get("type", "any")
    return {"number" if kind == "integer" else kind for kind in ([named] if isinstance(named, str) else named)} - {
        "null"
    }


def test_every_verb_has_a_schema(rmqctl: Rmqctl) -> None:
    from rmqctl.cli.job.job import JOBS
    from rmqctl.cli.main import VERBS

    assert set(SCHEMAS) == (set(VERBS) - WITHOUT_DOCUMENT) | {
        f"job.{name}" for name in set(JOBS) - {"verify", "rebuild"}
    }
    listed = rmqctl("schema").out.splitlines()
    assert listed == sorted(name.replace(".", " ") for name in SCHEMAS)


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_schema_prints_it(name: str, rmqctl: Rmqctl) -> None:
    found = rmqctl("schema", *name.split("."))
    assert (found.code, json.loads(found.out)) == (0, SCHEMAS[name])
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])


def test_an_unknown_verb_has_none(rmqctl: Rmqctl) -> None:
    found = rmqctl("schema", "nonsense")
    assert found.code == 2
    assert "no JSON schema for 'nonsense'" in found.err


def test_every_document_says_its_store() -> None:
    """Or its stores, where a verb takes several."""
    for name, schema in SCHEMAS.items():
        for document in schema.get("oneOf", [schema]):
            says = "stores" if name.startswith("job.") or {"reports", "a"} & document["properties"].keys() else "store"
            assert {"schema", says} <= set(document["required"]), name


def test_a_key_has_one_kind_of_value_in_all_documents() -> None:
    kinds: dict[str, set[str]] = defaultdict(set)
    for document, schema in SCHEMAS.items():
        for name, kind in keys_of(schema):
            if (document, name) not in WORDS_OF_HASHDEEP:
                kinds[name].add(kind)
    # scripts rely on both: repairs count what they lose, and heal lists what does not come back
    assert kinds.pop("lost") == {"object", "array"}
    assert kinds.pop("parts") == {"object", "array"}  # du gives bytes by part, info describes each
    assert kinds.pop("starts") == {"boolean", "string"}
    assert kinds.pop("skipped") == {"boolean", "number"}  # a step of trace, and the messages that send sent before
    assert {name for name, found in kinds.items() if len(found) > 1} == set(), kinds


INSPECTIONS = (
    ("info",),
    ("verify",),
    ("queue",),
    ("queue", "orders", "0"),
    ("query", "--topic", "orders", "--key", "c0"),
    ("lag",),
    ("config", "show"),
    ("checkpoint",),
    ("checkpoint", "set", "--physic-msg-timestamp", "0", "--dry-run"),
    ("dump", "--damaged", "--limit", "500", "--body", "utf8"),
    ("undo", "--list"),
    ("recover", "--dry-run"),
    ("recover", "--keep-going", "--dry-run"),
    ("truncate", "--dirty", "--dry-run"),
    ("heal", "--dry-run"),
    ("du", "--by", "hour"),
    ("erase", "--key", "c0", "--dry-run"),
    ("preflight", "--to", "4.9.7"),
    ("rebuild", "all", "--dry-run"),
    ("clean", "--keep-files", "1", "--dry-run"),
)


def documents_of(store: Path, rmqctl: Rmqctl) -> int:
    """Run each inspection with `-o json`; every document is valid by its schema (`Result.document`); how many there
    were.
    """
    documents = 0
    for command in INSPECTIONS:
        verb = command[:2] if command[0] == "config" else command[:1]
        result = rmqctl(*verb, store, *command[len(verb) :], "-o", "json")
        assert result.code != 70, (command, result.err)
        if result.out:
            document = result.document()
            assert (document["schema"], document["store"]) == (f"rmqctl.{command[0]}/1", str(store))
            documents += 1
    return documents


def each_of(names: Iterable[str], now: str) -> pytest.MarkDecorator:
    """Give a test one of the names now, and the others in the slow stage."""
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=[] if name == now else [pytest.mark.slow]) for name in names]
    )


@each_of(GOLDEN_NAMES, now="broker-497")
def test_documents_of_every_golden_store_are_valid(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    assert documents_of(unpack(name, tmp_path), rmqctl) >= (len(INSPECTIONS) if name == "broker-497" else 6)


@each_of(sorted(damage_cases()), now="497-basic--magic-zero-last-file-head")
def test_documents_of_every_damage_case_are_valid(name: str, tmp_path: Path, rmqctl: Rmqctl) -> None:
    case = damage_cases()[name]
    store = unpack(case["base"], tmp_path)
    apply_damage(store, case["ops"])
    assert documents_of(store, rmqctl) >= 6


@pytest.mark.parametrize("verb", ["doctor", "lag", "trace"])
def test_a_job_has_what_its_verb_has(verb: str) -> None:
    """Spark's tests are not always run: a key that only one of both has is seen here."""
    properties = {name: of for name, of in SCHEMAS[verb]["properties"].items() if name != "unresolved"}
    own = {name for name, _ in keys_of({"properties": properties})}
    assert own <= {name for name, _ in keys_of(SCHEMAS[f"job.{verb}"])}
