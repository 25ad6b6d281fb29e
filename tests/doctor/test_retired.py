# SPDX-License-Identifier: Apache-2.0
"""A check that was taken out, or is on trial, breaks nobody's configuration: one line says what became of it."""

import json

import pytest
from typer.testing import CliRunner

import truestep as ts
from truestep.cli.main import app
from truestep.core.errors import OptionError
from truestep.doctor import retired
from truestep.doctor.catalogue import checks
from truestep.doctor.linting import read_paths
from truestep.doctor.runtime.scope import engine_loop_scope
from truestep.doctor.selection import FindingsBaseline, configured_selection

FAULTY = """\
import torch
net = torch.nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    torch.nn.functional.cross_entropy(net(x), y).backward()
    opt.step(){comment}
"""
LINE = "GRAD999 (step-taken-aside) is retired and passed over: nobody ever made it"
SCREENS = ["text", "concise", "json", "sarif", "github"]


@pytest.fixture(autouse=True)
def gone(monkeypatch):
    monkeypatch.setitem(
        retired.RETIRED, "GRAD999", retired.RetiredCheck("step-taken-aside", "nobody ever made it")
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(FAULTY.format(comment=""))
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.mark.parametrize("name", ["GRAD999", "grad999", "GRAD99", "step-taken-aside"])
@pytest.mark.parametrize("option", ["--select", "--ignore"])
def test_an_option_that_names_one_is_passed_over(folder, option, name):
    result = call("read", "--no-cache", option, name)
    assert (result.exit_code, result.stderr.count(LINE)) == (int(option == "--ignore"), 1)


@pytest.mark.parametrize("output", SCREENS)
def test_settings_comments_and_a_baseline_that_name_one_are_passed_over(folder, output):
    settings = '[tool.truestep]\nselect = ["GRAD"]\nignore = ["step-taken-aside"]\nbaseline = "known.json"\n'
    (folder / "pyproject.toml").write_text(settings)
    (folder / "train.py").write_text(FAULTY.format(comment="  # truestep: ignore[GRAD999, GRAD001]"))
    document = {"schema_version": 1, "findings": {"GRAD999|train.py|opt.step()": 1}}
    (folder / "known.json").write_text(json.dumps(document))
    for _ in range(2):  # the second time from what is kept
        result = call("read", "--output", output)
        assert (result.exit_code, result.stderr.count(LINE), LINE in result.stdout) == (0, 1, False)


@pytest.mark.parametrize("comment", ["GRAD999", "step-taken-aside", "LOSS001, GRAD999"])
def test_a_comment_alone_is_told(folder, comment):
    (folder / "train.py").write_text(FAULTY.format(comment=f"  # truestep: ignore[{comment}]"))
    assert read_paths([folder]).retired == {"GRAD999"}
    assert LINE in call("read", "--no-cache").stderr


def test_a_baseline_alone_is_told(folder):
    (folder / "known.json").write_text(json.dumps({"findings": {"GRAD999|train.py|opt.step()": 1}}))
    assert FindingsBaseline(folder / "known.json").retired() == {"GRAD999"}


@pytest.mark.parametrize("name", ["GRAD999", "grad999", "step-taken-aside"])
def test_the_list_of_checks_says_why_it_went(name):
    result = call("checks", name)
    assert (result.exit_code, result.stdout) == (0, LINE + "\n")
    document = json.loads(call("checks", name, "--json").stdout)
    assert (document["checks"], document["retired"]) == ([], {"GRAD999": "nobody ever made it"})


def test_a_selection_of_retired_checks_alone_asks_for_nothing(folder):
    selection = configured_selection(folder, ["GRAD999"], [], None)
    assert not any(selection.wants(code) for code in checks())


def test_a_watch_says_it_as_a_warning():
    with pytest.warns(UserWarning, match="GRAD999"), ts.watch(select=["GRAD999"]):
        pass


def test_a_code_that_never_was_is_still_refused(folder):
    assert isinstance(call("read", "--select", "GRAD998").exception, OptionError)
    assert isinstance(call("checks", "GRAD998").exception, OptionError)


def test_a_check_on_trial_is_used_where_preview_is_on(folder, monkeypatch):
    monkeypatch.setattr(checks()["GRAD001"], "is_preview", True)
    hidden = call("read", "--no-cache", "--select", "GRAD001")
    assert (hidden.exit_code, "GRAD001 is on trial" in hidden.stderr) == (0, True)
    assert call("read", "--no-cache").exit_code == 0
    assert call("read", "--no-cache", "--preview").exit_code == 1
    assert "on trial" in call("checks", "GRAD001").stdout
    (folder / "pyproject.toml").write_text("[tool.truestep]\npreview = true\n")
    assert call("read", "--no-cache").exit_code == 1
    (folder / "pyproject.toml").write_text('[tool.truestep]\npreview = "yes"\n')
    assert isinstance(call("read").exception, OptionError)


def test_what_a_run_watches_by_itself_is_in_the_catalogue():
    watched = engine_loop_scope().checks
    assert watched
    assert {each.code: each for each in watched}.items() <= checks().items()
