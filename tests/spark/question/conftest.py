"""The Spark session, and stores, for all jobs that are questions."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from rmqctl.forensics.dump import Dump
from rmqctl.forensics.message_filter import Filter
from rmqctl.format.body.bodies import Bodies
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.conftest import READABLE_NAMES, Rmqctl, apply_damage, damage_cases, unpack

Row = dict[str, Any]
EVERY_NTH_CASE = 6


@pytest.fixture(autouse=True)
def _jobs_find_the_session(request: pytest.FixtureRequest) -> None:
    """A job without --master takes the existing session. Other tests begin none."""
    if request.node.get_closest_marker("spark") is not None:
        request.getfixturevalue("spark")


@pytest.fixture(scope="package")
def golden_stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("golden")
    return {name: unpack(name, folder / name) for name in READABLE_NAMES}


@pytest.fixture(scope="package")
def damaged_stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("damaged")
    cases = dict(sorted(damage_cases().items())[::EVERY_NTH_CASE])
    stores = {name: unpack(case["base"], folder / name) for name, case in cases.items()}
    for name, root in stores.items():
        apply_damage(root, cases[name]["ops"])
    return stores


@pytest.fixture
def document(rmqctl: Rmqctl) -> Callable[..., Row]:
    """Runs a job with -o json: its document, which fits its schema, and under `code` its exit code."""

    def run(name: str, *arguments: object) -> Row:
        result = rmqctl("job", name, *arguments, "-o", "json")
        assert result.out, result.err
        found = result.document()
        assert found["schema"] == f"rmqctl.job.{name}/1"
        schema = json.loads(files("rmqctl.cli").joinpath("schema", f"job.{name}.json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(found, schema)
        return found | {"code": result.code}

    return run


def dumped(root: Path, body: str = "none") -> list[Row]:
    """The rows of `rmqctl dump`."""
    with closing(ReadOnlyStore(root)) as store:
        return list(Dump(store, Filter(), bodies=Bodies(body), on_damage=lambda _: None).rows())
