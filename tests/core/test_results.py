# SPDX-License-Identifier: Apache-2.0
"""Results as JSON, on a screen, and in a notebook, where rich shows what it prints at once unless it is told not to."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

import pytest
import rich.console
import rich.jupyter
from rich.console import Group
from rich.panel import Panel
from rich.text import Text
from torch import nn

import truestep as ts
from truestep.core.result_display import Result, print_results


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


SHOWN = """
import os, random, sys
import numpy as np
import torch
import truestep as ts
from torch import nn

net, x = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1)), torch.ones(4, 2)
made = {
    "freeze": lambda: ts.freeze(net, "0"),
    "unfreeze": lambda: ts.unfreeze(net, "0"),
    "parameters": lambda: ts.parameters(net),
    "summary": lambda: ts.summary(net, x),
    "graph": lambda: ts.graph(net, x),
    "environment": ts.environment,
    "dtypes": ts.dtypes,
    "gpus": ts.gpus,
    "load_weights": lambda: ts.load_weights(net, net.state_dict()),
    "seed_everything": lambda: ts.seed_everything(0),
    "Mixture": lambda: ts.Mixture({"a": [1], "b": [2]}, weights={"a": 1, "b": 1}),
    "Standardizer": lambda: ts.nn.Standardizer().partial_fit(x),
    "runs": lambda: ts.runs(sys.argv[1]),
}

def streams():
    return random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().tolist()

for name, make in made.items():
    if not (child := os.fork()):  # in a process of its own: what is imported for a first result may draw, once
        try:
            shown = make()
            before = streams()
            for _ in range(2):
                repr(shown), str(shown), getattr(shown, "_repr_html_", str)()
            os._exit(streams() != before)
        except BaseException as error:
            print(name, error)
            os._exit(2)
    print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_what_is_shown_draws_from_no_shared_stream(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SHOWN, str(tmp_path)], check=True, stdout=subprocess.PIPE, text=True
    )
    names = re.findall(r'^    "(\w+)": ', SHOWN, re.MULTILINE)
    assert done.stdout.splitlines() == [f"{name} 0" for name in names]


def test_what_draws_a_screen_is_imported_in_one_place():
    """rich draws from Python's stream when it is imported; a name of it that comes by another way would do so again."""
    package = Path(ts.__file__).parent
    own = {
        "core/rich_imports.py": "",
        "core/result_display.py": "from rich import console",
        "cli/checks.py": "from rich.syntax",
    }
    found = [
        f"{path.relative_to(package).as_posix()}: {line.strip()}"
        for path in sorted(package.rglob("*.py"))
        for line in path.read_text().splitlines()
        if re.match(r"\s*(from|import) rich\b", line)
        and not line.strip().startswith(own.get(path.relative_to(package).as_posix(), "nowhere"))
    ]
    assert found == []
