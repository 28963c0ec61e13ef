"""Every kernel is compiled into the cache, in other processes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.kernels import warm_up_all
from tests.conftest import KERNELS, Rmqctl

if TYPE_CHECKING:
    import pytest


def test_every_module_of_kernels_is_compiled() -> None:
    assert {f"rmqctl.kernels.{name}" for name in warm_up_all.MODULES} == {module.__name__ for module in KERNELS}
    sources = Path(warm_up_all.__file__).parent.glob("*.py")
    assert len(warm_up_all.MODULES) == sum("\ndef warm_up() -> None:" in path.read_text() for path in sources)


def test_what_is_compiled_is_in_the_cache(rmqctl: Rmqctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up_all, "MODULES", ("queue_offset_range",))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = rmqctl("warm-up", "--progress", "json")
    folder = Path(result.out.strip())
    assert (result.code, folder.parent) == (0, tmp_path / "rmqctl")
    assert '{"progress":"compiling","tasks":1,"totalTasks":1}' in result.err
    assert [path.name.partition("-")[0] for path in folder.glob("*/*.nbi")] == ["queue_offset_range.add_messages"]


def test_without_a_folder_nothing_is_compiled(rmqctl: Rmqctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqctl.kernels.kernel_cache.find_cache", lambda: None)
    result = rmqctl("warm-up")
    assert (result.code, result.out) == (4, "")
    assert "XDG_CACHE_HOME" in result.err
