# SPDX-License-Identifier: Apache-2.0
"""The shape of the code is held by tests: sizes, import directions, licence lines, public names."""

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import truestep

pytestmark = pytest.mark.xdist_group("structure")  # one process parses all files, once

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
    "checkpoints/store.py:save": "what a checkpoint says of itself, and what outlives it; all but step and state by name",
    "run/run.py:__init__": "each keyword is an option of the run, and users write them by name",
    "run/run.py:learner": "each keyword is one slot of a learner, and users write them by name",
    "model/summaries/summary.py:summary": "what it foretells of a training, in the words of a run, all by name",
    "nn/sampling.py:sample_logits": "the field's words for a sampler, all but the logits by name",
    "nn/derivatives/penalties.py:gradient_penalty": "what is differentiated, where, and what it costs; the last four by name",
}

MAX_CIRCLE = 2  # files that import each other, types counted
# a parsed file, what sort of thing its expressions are, and the questions about it that are answered once
CIRCLES_OF_THREE = [["cached_questions", "expression_kinds", "module"]]

# Who may import whom: a package may import those to its right in this order, never one to its left.
LAYERS = [
    {"cli"},
    {"recipes", "frameworks", "selfcheck"},
    {"run"},
    {"explainer"},  # it asks the doctor's checks, and is asked by none of its layer
    {"report", "engine", "doctor", "model"},
    {"mirror"},
    {"checkpoints", "machine"},
    {"nn"},
    {"instrument"},
    {"core"},
]


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return every function; of statements alone, since no expression holds one with a body, and they are a tenth."""
    found, left = [], [*parsed(path).body]
    while left:
        node = left.pop()
        if isinstance(node, ast.expr):  # a lambda's or a conditional's body
            continue
        found += [node] if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else []
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, part, ())
    return found


@cache
def imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Return the imports anywhere in a file, for types alone too."""
    return [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Import | ast.ImportFrom)]


def body_lines(function: ast.FunctionDef) -> int:
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_the_package_under_test_is_the_built_wheel_when_asked():
    if os.environ.get("TRUESTEP_TEST_WHEEL"):
        assert REPOSITORY / "src" not in PACKAGE.parents


def test_every_file_names_its_licence():
    places = [
        folder
        for name in ("tests", "docs", "benchmarks", "examples", "tools")
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
    for node in imports(path):
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


# A class with more methods is several: what changes together is a class of its own.
MAX_METHODS = 25
MANY_METHODS: dict[str, str] = {
    "run/run.py:Run": "what users call, by name; each hands on",
    "engine/data/stream_source.py:StreamSource": "each answers one question of a source, most in a line",
    "engine/processes/world.py:World": "what processes do together, each in turn",
}
# A file of doctor/source that one other file alone imports is a part of that file, or says here why it is not.
ONE_IMPORTER = {
    "branch_choices": "a part of tracing.py, which would have 450 lines and more",
    "call_replays": "a part of tracing.py, which would have 450 lines and more",
    "closed_world": "the closed world of what is never done, asked for every finding; applying.py asks it of the checks",
    "collating": "what a batch holds, by the code that collates it: three times the check that asks today",
    "eventful_parts": "a part of tracing.py, which would have 450 lines and more",
    "exercise_blanks": "what a form with blanks is; with the check one file of 420 lines and two matters",
    "expression_kinds": "a service of its own; with module.py one file of 340 lines",
    "functions": "a service of its own; with resolving.py one file of 410 lines",
    "loss_scaling": "whether a loss or its gradients may be divided; with the check one file of 400 lines and two matters",
    "object_contents": "what one object carries into other functions; with resolving.py a class of 26 methods",
    "overlapping_windows": "which examples are windows of one series; with the check one file of 480 lines and two matters",
    "per_batch_functions": "which function is a step, and what outlives it; with the check one file of 390 lines and two matters",
    "program_settings": "what settings are, by name and by maker; with expression_kinds.py one file of 220 lines and two matters",
    "project": "the files that are read together; tests and tools make one without reading anything",
    "recomputed_values": "what a value's graph is made of, with the check one file of 230 lines and two matters",
    "shared_weights": "what keeps weights as they are; with the check one file of 500 lines",
    "tracing": "the walk itself; with entries.py one file of 530 lines",
    "unfollowed_calls": "which functions nobody can follow; with closed_world.py one file of 430 lines",
}


def test_a_class_has_few_methods():
    many = {
        f"{name_of(path)}:{node.name}"
        for path in FILES
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef)
        and sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body) > MAX_METHODS
    }
    assert many == set(MANY_METHODS)


def test_a_file_of_the_model_is_imported_by_several_others_or_says_why_not():
    files = {
        f"truestep.doctor.source.{path.stem}": path for path in (PACKAGE / "doctor" / "source").glob("*.py")
    }
    importers: dict[str, set[Path]] = {name: set() for name in files if not name.endswith("__init__")}
    for path in FILES:
        for name in imported_modules(path, set(importers)):
            importers[name].add(path)
    assert {name.rpartition(".")[2] for name, paths in importers.items() if len(paths) < 2} == set(
        ONE_IMPORTER
    )


def test_bytecode_is_read_in_one_place():
    readers = {name_of(path) for path in FILES if {"dis"} & imported_names(path)}
    assert readers == {"core/call_site.py"}


def imported_names(path: Path) -> set[str]:
    return {alias.name for node in imports(path) if isinstance(node, ast.Import) for alias in node.names}


def layer(package: str) -> int:
    return next(index for index, names in enumerate(LAYERS) if package in names)


def test_imports_go_one_way():
    wrong = []
    for path in FILES:
        home = path.relative_to(PACKAGE).parts[0]
        if home.endswith(".py"):
            continue
        for target in imported_packages(path) - {home}:
            if target == "cli" or layer(target) <= layer(home):
                wrong.append(f"{name_of(path)} imports {target}")
    assert wrong == []


def imported_modules(path: Path, modules: set[str]) -> set[str]:
    """Return the modules of the package that a file imports anywhere, for types alone too."""
    found = set()
    for node in imports(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                found.add(submodule if submodule in modules else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules


def circles() -> list[set[str]]:
    """Return the sets of modules that all reach each other by imports, largest first."""
    paths = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in FILES}
    paths = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    graph = {name: imported_modules(path, set(paths)) - {name} for name, path in paths.items()}
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for target in graph[waiting.pop()] - seen:
                seen.add(target)
                waiting.append(target)
        reached[start] = seen
    found = {
        frozenset({name} | {other for other in reached[name] if name in reached[other]})
        for name in graph
        if name in reached[name]
    }
    return sorted((set(circle) for circle in found), key=len, reverse=True)


def test_no_import_circle_has_more_than_two_files():
    """A class is not made small by cutting it into files that import each other, so imports for types count too."""
    larger = [
        sorted(name.removeprefix("truestep.doctor.source.") for name in circle)
        for circle in circles()
        if len(circle) > MAX_CIRCLE
    ]
    assert larger == CIRCLES_OF_THREE


# What a user holds may hide names of what it forwards to, so its own are few.
MAX_LEARNER_NAMES = 12


def test_a_learner_has_few_public_names():
    import torch

    from truestep.engine.learner import Learner, LearnerOptions
    from truestep.engine.shared_context import LearnerContext

    module = torch.nn.Linear(1, 1)
    context = LearnerContext(torch.device("cpu"))
    net = Learner(module, lambda p: torch.optim.SGD(p, lr=0.1), LearnerOptions(name="net"), context)
    names = {name for name in {*dir(net), *vars(net)} - set(dir(module)) if not name.startswith("_")}
    assert len(names) <= MAX_LEARNER_NAMES
    assert names == {
        *("update", "accumulating", "evaluate", "averaged"),
        *("module", "optimizers", "learning_rate", "started", "name"),
        *("training_state", "load_training_state"),
    }


def test_public_names_stand_in_the_stub_sorted_and_documented():
    assert truestep.__all__ == sorted(truestep.__all__, key=str.casefold)
    lines = (PACKAGE / "__init__.pyi").read_text("utf-8").splitlines()
    named = [line.split(" as ")[1] for line in lines if line.startswith("from ")]
    assert len(named) == len(set(named)) == len(truestep.__all__)
    undocumented = [name for name in truestep.__all__ if not getattr(truestep, name).__doc__]
    assert undocumented == []


@pytest.mark.parametrize("statement", ["import truestep", "from truestep.cli.main import main"])
def test_starting_imports_no_torch(statement):
    code = f"import sys; {statement}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


MOST_MODULES_OF_A_NAME = 100


def test_the_name_of_a_run_loads_few_modules():
    """What a run is made of is loaded when one is made: counted, since a time says more of the machine."""
    code = (
        "import sys, torch; before = set(sys.modules); import truestep as ts; ts.Run\n"
        "print(sum(each.startswith('truestep') for each in sys.modules))\n"
        "print(*(set(sys.modules) - before) & {'numpy.random', 'rich', 'torch.distributed.fsdp', 'pyflakes', 'blake3'})"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    count, others = done.stdout.split("\n")[:2]
    assert int(count) <= MOST_MODULES_OF_A_NAME
    assert others == ""


def test_the_names_of_strategies_are_those_of_the_table():
    from typing import get_args

    from truestep.engine.strategies import STRATEGIES
    from truestep.run.options import StrategyName

    assert get_args(StrategyName) == ("auto", *STRATEGIES)


def _writes(path: Path, kinds: set[str]):
    """Yield what a file assigns to attributes of the given names' objects, or changes in place."""
    for node in ast.walk(parsed(path)):
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
        targets = [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else targets
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            targets = [node.func.value]
        for target in targets:
            while isinstance(target, ast.Subscript):
                target = target.value
            parts = ast.unparse(target).split(".")
            if isinstance(target, ast.Attribute) and kinds & set(parts[:-1]):
                yield f"{name_of(path)}:{node.lineno} {ast.unparse(target)}"


CHANGES = {"append", "extend", "insert", "add", "update", "setdefault", "pop", "clear", "remove", "discard"}


def test_the_recorder_alone_writes_what_happened_in_a_watched_run():
    """Checks read it: what one check wrote another would take for a fact, but only where the first is selected."""
    doctor = [path for path in FILES if name_of(path).startswith("doctor/")]
    others = [path for path in doctor if path.name != "recorder.py"]
    assert [found for path in others for found in _writes(path, {"history", "record"})] == []
    recorder = PACKAGE / "doctor" / "runtime" / "recorder.py"
    assert list(_writes(recorder, {"history", "record"}))


def test_a_watch_is_a_life_cycle():
    path = PACKAGE / "doctor" / "runtime" / "watch.py"
    watch = next(
        node for node in parsed(path).body if isinstance(node, ast.ClassDef) and node.name == "Watch"
    )
    assert watch.end_lineno - watch.lineno < 120
    assert len([node for node in watch.body if isinstance(node, ast.FunctionDef)]) <= 12


# Two classes of one name, {name: the rooms that have it}. None may be added; a line goes when its owner has chosen another name.
# A recipe is a file that stands alone, so that its classes are called what they are in every other one.
# What a user of another library writes has the library in its name: ts.lightning.ExactResume.
HOMONYMS: dict[str, set[str]] = {"ExactResume": {"frameworks"}}
# Names that say nothing to a stranger; {name: the rooms that still have it}.
EMPTY_NAMES = {"Group", "Kit", "LastWord", "Part", "Rehearsal", "Saw", "Scene", "Sums", "Transient"}


def rooms_of_classes() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in FILES:
        if path.parent == PACKAGE / "recipes":
            continue
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(name_of(path).split("/")[0])
    return found


def test_the_name_of_a_class_stands_once_in_the_house():
    twice = {name: set(rooms) for name, rooms in rooms_of_classes().items() if len(rooms) > 1}
    added = {name: rooms for name, rooms in twice.items() if not rooms <= HOMONYMS.get(name, set())}
    assert added == {}


def test_no_class_has_a_name_that_says_nothing():
    assert EMPTY_NAMES.isdisjoint(rooms_of_classes())
