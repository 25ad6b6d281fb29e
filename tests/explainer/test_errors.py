# SPDX-License-Identifier: Apache-2.0
"""The contract of every error: its page is whole, its example raises it and is explained, Works raises nothing."""

import ast
import gc
import inspect
import linecache
import re
import subprocess
import sys
import warnings
from string import Formatter

import pytest
import torch

from truestep.doctor.catalogue import checks
from truestep.doctor.page import PRELUDE
from truestep.explainer import memory_holders
from truestep.explainer.catalogue import explained_errors, recognise_error
from truestep.explainer.crash import Crash
from truestep.explainer.explain import explain_crash, explain_exception
from truestep.explainer.explanation import COLUMNS, MAX_LINES, _wrap_labelled_paragraph
from truestep.explainer.logs.explaining import explain_log

ERRORS = list(explained_errors().values())
RAISED = [error for error in ERRORS if error.page().raises]
RECORDED = [error for error in ERRORS if error.page().recorded]
WORKING = [error for error in ERRORS if error.page().works]


def by_name(error):
    return error.name()


@pytest.fixture(autouse=True)
def hook_put_back(monkeypatch):
    """A process group sets an exception hook, and keeps it."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


@pytest.fixture(autouse=True)
def distributions_check_their_parameters():
    """torch.compile ends these checks for the whole process, whoever called it."""
    torch.distributions.Distribution.set_default_validate_args(True)


@pytest.fixture(autouse=True)
def groups_outlive_their_models(monkeypatch):
    """Where DDP's reducer is the last to hold a group, it waits with the GIL for threads that may need it (torch 2.13)."""
    kept, destroy = [], torch.distributed.destroy_process_group

    def destroy_later():
        kept.append(torch.distributed.group.WORLD)
        destroy()

    monkeypatch.setattr(torch.distributed, "destroy_process_group", destroy_later)
    yield
    if kept:
        gc.collect()  # the models of the example, which its classes and functions keep in a circle


def run(code, tmp_path):
    """Run an example as a script of the user's, in a folder of its own."""
    file = tmp_path / "train.py"
    file.write_text(PRELUDE + code, "utf-8")
    linecache.checkcache()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings(
            "ignore", "This process .* is multi-threaded, use of fork", DeprecationWarning
        )
        warnings.filterwarnings("ignore", "Got pickle error when", UserWarning)
        exec(compile(file.read_text("utf-8"), str(file), "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("error", ERRORS, ids=by_name)
def test_the_page_is_whole_and_fits_the_note(error):
    page = error.page()
    assert page.summary.endswith(".")
    assert page.means.endswith((".", "?"))
    assert len(list(_wrap_labelled_paragraph("Means", page.means, 99))) <= 2
    assert len(list(_wrap_labelled_paragraph("Fix", page.fix, 99))) <= 3
    for code in (page.raises, page.works):
        ast.parse(code)


@pytest.mark.parametrize("error", ERRORS, ids=by_name)
def test_a_file_holds_one_error_named_as_it(error):
    assert error.__module__.rsplit(".", 1)[-1] == error.name().replace("-", "_")


@pytest.mark.parametrize("error", ERRORS, ids=by_name)
def test_the_checks_it_names_exist(error):
    assert set(error.checks) <= set(checks())


@pytest.mark.parametrize("error", RAISED, ids=by_name)
def test_the_example_raises_it_and_is_explained(error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is what the page says
        run(error.page().raises, tmp_path)
    explanation = explain_exception(caught.value)
    assert explanation is not None, repr(caught.value)
    assert explanation.name == error.name()
    lines = explanation.lines()
    assert len(lines) <= MAX_LINES
    assert max(map(len, lines)) <= COLUMNS
    assert "train.py" in explanation.at


@pytest.mark.parametrize("error", WORKING, ids=by_name)
def test_what_works_raises_nothing(error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(error.page().works, tmp_path)


@pytest.mark.parametrize("error", RECORDED, ids=by_name)
def test_the_recorded_text_is_explained(error):
    report = explain_log(error.page().recorded)
    assert report.main is not None
    assert report.main.explanation is not None, report.main.error
    assert report.main.explanation.name == error.name()


@pytest.mark.parametrize("error", ERRORS, ids=by_name)
def test_nothing_at_all_is_not_taken_for_it(error):
    for text in ("", "loss is 0.3", "something went wrong", "it failed at step 3 of 10", "an error occurred"):
        assert error.match(Crash(("RuntimeError",), text)) is None


def test_the_catalogue_and_a_log_import_no_torch():
    code = (
        "import sys; from truestep.explainer.logs.explaining import explain_log; "
        "r = explain_log('RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB'); assert r.main.explanation; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_explanation_that_fails_leaves_the_page(logged, monkeypatch):
    error = explained_errors()["matrix-sizes-differ"]
    crash = Crash(("RuntimeError",), "mat1 and mat2 shapes cannot be multiplied (4x10 and 20x5)")
    assert recognise_error(crash)[0] is error
    monkeypatch.setattr(error, "cause", lambda *_: 1 / 0)
    with logged.debugging():
        explanation = explain_crash(crash)
    assert explanation.here is None
    assert explanation.fix == error.page().fix
    assert any("cause of matrix-sizes-differ" in each for each in logged.messages)


@pytest.mark.parametrize("error", [error for error in ERRORS if error.page().cases], ids=by_name)
def test_its_cases_name_facts_that_there_are(error):
    groups = {
        name for pattern in (*error.messages, *error.besides) for name in re.compile(pattern).groupindex
    }
    source = "".join(map(inspect.getsource, (inspect.getmodule(error), memory_holders)))
    evidence = {"layer", "input", "data_set", "shapes", "and_shapes", "tensor", "and_tensor", "verdict"}
    for case in error.page().cases:
        named = {name for _, name, _, _ in Formatter().parse(case.says + case.fix) if name is not None}
        own = {name for name in named if f'"{name}"' in source}  # what its `facts` give
        assert named <= groups | evidence | own, case


def test_a_page_shows_what_its_cases_say_and_not_what_is_a_fact_alone():
    assert explained_errors()["leaf-changed-in-place"].page().cases_to_show() == ["the leaf is {tensor}."]
    assert (
        explained_errors()["out-of-gpu-memory"]
        .page()
        .cases_to_show()[0]
        .startswith("{others} of {total} belong")
    )
    assert (
        "load {key.removeprefix(" in explained_errors()["state-dict-does-not-fit"].page().cases_to_show()[0]
    )
