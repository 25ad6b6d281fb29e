# SPDX-License-Identifier: Apache-2.0
"""Results in a notebook, where rich shows what it prints at once unless it is told not to."""

from collections.abc import Callable

import pytest
import rich.console
import rich.jupyter
from torch import nn

import truestep as ts


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
