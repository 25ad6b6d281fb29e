# SPDX-License-Identifier: Apache-2.0
"""Results as JSON, on a screen, and in a notebook, where rich shows what it prints at once unless it is told not to."""

from collections.abc import Callable
from dataclasses import dataclass, field
from io import StringIO

import pytest
import rich.console
import rich.jupyter
from rich.console import Group
from rich.panel import Panel
from rich.text import Text
from torch import nn

import truestep as ts
from truestep.core.results import Result, print_results


@pytest.mark.parametrize("made", [str, lambda result: result._repr_html_()])
def test_a_notebook_shows_a_result_once(monkeypatch, made: Callable[[object], str]):
    shown = []
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    monkeypatch.setattr(rich.jupyter, "display", lambda *args: shown.append(args))
    assert "0.weight" in made(ts.parameters(nn.Sequential(nn.Linear(2, 3))))
    assert shown == []


def test_columns_stand_below_each_other_in_a_notebook():
    html = ts.parameters(nn.Linear(2, 3))._repr_html_()
    assert html.startswith("<pre")
    assert "monospace" in html


def test_a_field_that_is_not_shown_is_not_saved_either():
    @dataclass(frozen=True)
    class Held(Result):
        kept: int
        held: object = field(default=None, repr=False)

        def __rich__(self):
            return f"kept {self.kept}"

    assert Held(3, object()).to_dict() == {"schema_version": 1, "kept": 3}
    assert "kept" in Held(3)._repr_html_()


@pytest.mark.parametrize("is_terminal", [False, True])
def test_what_is_printed_is_never_cut_and_off_a_terminal_has_no_blanks_at_its_ends(is_terminal):
    out = StringIO()
    screen = rich.console.Console(file=out, width=20, force_terminal=is_terminal, color_system=None)
    path = "a/path/that/is/longer/than/the/screen.py"
    print_results([Group(Text(path, no_wrap=True, overflow="ignore")), Panel("x")], screen)
    lines = out.getvalue().split("\n")
    assert lines[0].rstrip() == path
    assert is_terminal or all(line == line.rstrip() for line in lines)
