# SPDX-License-Identifier: Apache-2.0
"""The public names that the documentation and the messages use exist."""

import importlib
import pkgutil
import re
import types
from pathlib import Path

import pytest
from support.pages import HAND_WRITTEN

import truestep

REPOSITORY = Path(__file__).parents[1]
PAGES = [REPOSITORY / "README.md", *HAND_WRITTEN]
PACKAGE = Path(truestep.__file__).parent
SOURCES = [*sorted(PACKAGE.rglob("*.py")), PACKAGE / "core" / "guidance.md"]

ENGINE = (
    *(
        "Run",
        "Learner",
        "update",
        "weighted",
        "Weighted",
        "Split",
        "Update",
        "Parameters",
        "Precision",
        "EMA",
    ),
    *("LossScale", "Clip", "ClipNorm", "ClipValue", "ClipAdaptive", "ClipFunction", "muon_with_adamw"),
    *("warmup_cosine", "warmup_linear", "warmup_constant", "warmup_inverse_sqrt", "one_cycle", "plateau"),
    *("per_epoch", "per_update"),
    *("TruestepError", "BatchError", "DataError", "LossError", "NonFiniteError", "OptionError"),
    *("CheckpointError", "RunDirectoryError"),
)


def names_in(path):
    """Return what is written as `ts.NAME` or `truestep.NAME(`, where a page's code imports truestep as ts; NAME is any."""
    text = path.read_text(encoding="utf-8")
    found = re.findall(r"\bts\.([A-Za-z_]\w*)", text) + re.findall(r"\btruestep\.([A-Za-z]\w*)\(", text)
    return {*found} - {"NAME"}


@pytest.mark.parametrize("name", ENGINE)
def test_the_engines_names_are_public(name):
    assert getattr(truestep, name).__doc__


@pytest.mark.parametrize("page", [page for page in PAGES if page.exists()], ids=lambda page: page.name)
def test_names_in_the_documentation_exist(page):
    missing = {name for name in names_in(page) if not hasattr(truestep, name)}
    assert not missing


def test_names_in_messages_and_docstrings_exist():
    missing = {
        f"{path.name}: {name}" for path in SOURCES for name in names_in(path) if not hasattr(truestep, name)
    }
    assert not missing


@pytest.mark.parametrize("package", [truestep, truestep.nn], ids=lambda package: package.__name__)
def test_no_public_name_is_that_of_a_module_which_would_hide_it_once_it_is_imported(package):
    """Importing `package.x` sets the attribute x, whatever was there: a function of that name would be gone."""
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    both = modules & set(package.__all__)
    assert both <= {"nn", "lightning", "transformers", "accelerate"}
    for name in both:
        before = getattr(package, name)
        assert importlib.import_module(f"{package.__name__}.{name}") is before
        assert getattr(package, name) is before


@pytest.mark.parametrize("name", truestep.nn.__all__)
def test_the_pieces_are_documented_and_no_modules(name):
    piece = getattr(truestep.nn, name)
    assert piece.__doc__
    assert not isinstance(piece, types.ModuleType)
