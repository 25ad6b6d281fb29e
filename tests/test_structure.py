# SPDX-License-Identifier: Apache-2.0
"""The shape of the code is held by tests: sizes, import directions, licence lines, public names."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import truestep

PACKAGE = Path(truestep.__file__).parent
REPOSITORY = Path(__file__).parents[1]
FILES = sorted(PACKAGE.rglob("*.py"))

MAX_FILE_LINES = 450
MAX_FUNCTION_LINES = 30
MAX_PARAMETERS = 6

# Each exception has its reason. `path` or `path:function`.
LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}
MANY_PARAMETERS: dict[str, str] = {
    "run/run.py:__init__": "each keyword is an option of the run, and users write them by name",
    "run/run.py:learner": "each keyword is one slot of a learner, and users write them by name",
    "nn/derivatives/penalties.py:gradient_penalty": "what is differentiated, where, and what it costs; the last four by name",
}

# Who may import whom: a package may import those to its right in this order, never one to its left.
LAYERS = [{"cli"}, {"recipes"}, {"run"}, {"engine", "doctor", "inspection", "explainer"}, {"nn"}]
EVERYWHERE = {"errors", "lazy", "results"}


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(path: Path):
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def body_lines(function: ast.FunctionDef) -> int:
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_the_package_under_test_is_the_built_wheel_when_asked():
    if os.environ.get("TRUESTEP_TEST_WHEEL"):
        assert REPOSITORY / "src" not in PACKAGE.parents


def test_every_file_names_its_licence():
    places = [
        folder
        for name in ("tests", "docs", "benchmarks", "examples")
        for folder in (REPOSITORY / name).rglob("*.py")
    ]
    missing = [
        str(path)
        for path in [*FILES, *places]
        if "SPDX-License-Identifier: Apache-2.0" not in path.read_text("utf-8")[:200]
    ]
    assert missing == []


def test_files_are_short():
    long = {name_of(path) for path in FILES if len(path.read_text("utf-8").splitlines()) > MAX_FILE_LINES}
    assert long == set(LONG_FILES)


def test_functions_are_short():
    long = {
        f"{name_of(path)}:{node.name}"
        for path in FILES
        for node in functions(path)
        if body_lines(node) > MAX_FUNCTION_LINES
    }
    assert long == set(LONG_FUNCTIONS)


def test_functions_take_few_parameters():
    def count(node):
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        return len([argument for argument in arguments if argument.arg not in ("self", "cls")])

    # a command's parameters are its options: typer reads them from the signature
    many = {
        f"{name_of(path)}:{node.name}"
        for path in FILES
        for node in functions(path)
        if count(node) > MAX_PARAMETERS and "cli/" not in name_of(path)
    }
    assert many == set(MANY_PARAMETERS)


def imported_packages(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("truestep"):
            names = (
                [node.module]
                if node.module != "truestep"
                else [f"truestep.{alias.name}" for alias in node.names]
            )
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("truestep.")]
        else:
            continue
        found |= {name.split(".")[1] for name in names if "." in name}
    return found


def layer(package: str) -> int:
    return next(index for index, names in enumerate(LAYERS) if package in names)


def test_imports_go_one_way():
    wrong = []
    for path in FILES:
        home = path.relative_to(PACKAGE).parts[0]
        if home.endswith(".py"):
            continue
        for target in imported_packages(path) - EVERYWHERE - {home}:
            if target == "cli" or layer(target) <= layer(home):
                wrong.append(f"{name_of(path)} imports {target}")
    assert wrong == []


def test_public_names_are_sorted_complete_and_documented():
    assert truestep.__all__ == sorted(truestep.__all__, key=str.casefold)
    assert set(truestep._WHERE) == set(truestep.__all__)
    static = {
        alias.asname
        for node in ast.walk(parsed(PACKAGE / "__init__.py"))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname and not alias.asname.startswith("_")
    }
    assert static == set(truestep.__all__)
    undocumented = [name for name in truestep.__all__ if not getattr(truestep, name).__doc__]
    assert undocumented == []


@pytest.mark.parametrize("statement", ["import truestep", "from truestep.cli.main import main"])
def test_starting_imports_no_torch(statement):
    code = f"import sys; {statement}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
