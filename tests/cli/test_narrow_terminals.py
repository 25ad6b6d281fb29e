# SPDX-License-Identifier: Apache-2.0
"""On a terminal of 80 columns lines are broken between words; off a terminal each line stays whole."""

import re
import sys

import pytest

from truestep.cli import checks, errors, explain, recipes, train
from truestep.doctor import catalogue
from truestep.explainer.catalogue import explained_errors
from truestep.explainer.explanation import Explanation

WIDTH = 80
MESSAGE = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x784 and 400x10)"
COMMANDS = {
    "errors": lambda: errors.show_errors(None),
    "recipes": lambda: recipes.list_recipes(as_json=False),
    "train": train._print_general_help,
    "explain": lambda: explain.explain(MESSAGE),
    "checks": lambda: checks.show_checks(None),
    **{f"errors {name}": lambda name=name: errors.show_errors(name) for name in explained_errors()},
}


def written(command, monkeypatch, capsys, *, is_terminal):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setenv("COLUMNS", str(WIDTH)) if is_terminal else monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TERM", "dumb")
    command()
    return capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(name, monkeypatch, capsys):
    narrow = written(COMMANDS[name], monkeypatch, capsys, is_terminal=True)
    wide = written(COMMANDS[name], monkeypatch, capsys, is_terminal=False)
    words = narrow.split()
    assert sorted(words) == sorted(wide.split()) if name == "checks" else words == wide.split()
    told = [line for line in narrow.splitlines() if not line.startswith("    ") or name == "checks"]
    assert [line for line in told if len(line) > WIDTH and " " in line.strip()] == []


def test_off_a_terminal_the_severities_of_a_check_stand_in_its_line(monkeypatch, capsys):
    """So that a search for a code or a severity finds the other."""
    lines = written(COMMANDS["checks"], monkeypatch, capsys, is_terminal=False).splitlines()
    severities = {code: ", ".join(check.severities()) for code, check in catalogue.checks().items()}
    found = {line.split()[0]: line for line in lines[1:-2] if not line.startswith(" ")}
    assert [code for code, words in severities.items() if words not in found[code]] == []


def test_no_text_is_in_the_blue_that_a_dark_terminal_swallows(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    checks.show_checks(["GRAD001"])
    codes = re.findall(r"\x1b\[([\d;]*)m", capsys.readouterr().out)
    assert codes
    assert [code for code in codes if "34" in code.split(";")] == []


def test_what_is_said_of_a_name_stands_behind_it(monkeypatch, capsys):
    lines = written(COMMANDS["recipes"], monkeypatch, capsys, is_terminal=True).splitlines()
    column = lines[0].index("A language model")
    assert len([line for line in lines if line.startswith(" " * column)]) >= 3


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_note_on_a_narrow_terminal_says_as_much_in_more_lines(columns, monkeypatch):
    text = (
        "a reason of several words, which goes on for longer than a line has room for, and then a little more"
    )
    parts = dict.fromkeys(("at", "check", "not_told"))
    told = Explanation(name="an-error", error="E: e", means=text, here=text, values=(), fix=text, **parts)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    note = told.note()
    assert note.split() == "\n".join(told.lines()).split()
    assert max(map(len, note.splitlines())) <= min(columns, 100)
