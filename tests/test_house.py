"""The house stays as CONTRIBUTING.md describes it.

No folder grows too large, no modules import each other in a circle, and docstrings begin with a short line.
"""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import rmqctl

ROOT = Path(rmqctl.__file__).parent
MODULES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}
FILES_MAX, LINES_MAX, FILE_LINES_MAX = 16, 2500, 500
SUMMARY_LENGTH_MAX = 79
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def imported(module: str) -> set[str]:
    """The modules of rmqctl that a module imports, anywhere in it, also for types alone."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & MODULES.keys() - {module}


def test_no_modules_import_each_other_in_a_circle() -> None:
    packages = {module for module, path in MODULES.items() if path.name == "__init__.py"}
    graph = {module: imported(module) - packages for module in MODULES}
    assert len(graph) > 200
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_every_docstring_begins_with_one_short_line() -> None:
    found = {
        (module, getattr(node, "name", "module")): docstring
        for module, path in MODULES.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, DOCUMENTED) and (docstring := ast.get_docstring(node)) is not None
    }
    assert len(found) > 1500
    summaries = {place: docstring.split("\n\n")[0] for place, docstring in found.items()}
    assert [place for place, text in summaries.items() if "\n" in text or len(text) > SUMMARY_LENGTH_MAX] == []


def test_no_folder_is_too_large() -> None:
    """Kernels are many, and long: they are the compiled twins of what stands in the format's folder."""
    folders: dict[Path, list[Path]] = {}
    for path in MODULES.values():
        folders.setdefault(path.parent, []).append(path)
    del folders[ROOT / "kernels"]
    for folder, files in folders.items():
        lines = sum(len(path.read_text().splitlines()) for path in files)
        assert len(files) <= FILES_MAX, folder
        assert lines <= LINES_MAX, (folder, lines)


def test_no_file_is_too_long() -> None:
    assert {path for path in MODULES.values() if len(path.read_text().splitlines()) > FILE_LINES_MAX} == set()


def test_tests_import_nothing_from_test_modules() -> None:
    imports = re.compile(r"^\s*(from|import) tests\b.*\btest_", re.MULTILINE)
    assert [path for path in Path(__file__).parent.rglob("*.py") if imports.search(path.read_text())] == []


def test_ci_installs_what_the_readme_installs() -> None:
    """Otherwise `.ci/run` would not show that the README's test command passes."""
    top = Path(__file__).parents[1]
    (command,) = (line for line in (top / "README.md").read_text().splitlines() if line.endswith("-m pytest"))
    words = ("install -q -U pip", "install -q '.[all]' --group test")
    for text in (command, (top / ".ci" / "run").read_text()):
        assert all(part in text for part in words)
