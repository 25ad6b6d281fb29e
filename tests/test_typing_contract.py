# SPDX-License-Identifier: Apache-2.0
"""What type checkers and editors are told is what there is: py.typed, and stubs that name what is exported, where it is.

`make check` lets mypy read `tests/typing/api.py` against the stubs.
"""

import ast
import importlib
import inspect
import tomllib
from pathlib import Path

import pytest

import truestep

PACKAGES = ["truestep", "truestep.nn", "truestep.checkpoints"]
PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def named(package: str) -> list[tuple[str, str, str]]:
    """Return the module, the name there and the name here of everything that a stub names."""
    stub = Path(importlib.import_module(package).__file__ or "").with_suffix(".pyi")
    return [
        (node.module or "", each.name, each.asname or "")
        for node in ast.walk(ast.parse(stub.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    ]


def test_the_package_says_that_it_is_typed():
    assert (Path(truestep.__file__).parent / "py.typed").is_file()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_stub_names_what_is_exported_and_nothing_else(package):
    here = importlib.import_module(package)
    assert sorted(name for _, _, name in named(package)) == sorted(here.__all__)
    for module, name, alias in named(package):
        assert name == alias, "`from module import name as name` is what marks a name as exported"
        public = getattr(here, alias)  # first: what answers wrong calls takes a function's place
        home = importlib.import_module(module)
        there = importlib.import_module(f"{module}.{name}") if module == package else getattr(home, name)
        assert public is there


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_function_has_all_its_types(package):
    here = importlib.import_module(package)
    functions = [each for each in (getattr(here, name) for name in here.__all__) if inspect.isfunction(each)]
    assert functions or package == "truestep.checkpoints"
    for function in functions:
        signature = inspect.signature(function)
        annotations = [each.annotation for each in signature.parameters.values()]
        assert inspect.Signature.empty not in [*annotations, signature.return_annotation], function


def test_mypy_reads_the_example_of_the_api():
    settings = tomllib.loads(PROJECT.read_text("utf-8"))["tool"]["mypy"]
    assert settings["strict"]
    assert "tests/typing" in settings["files"]
