# SPDX-License-Identifier: Apache-2.0
"""What a run, its data, its choices and an update look like in a terminal and in a notebook."""

from html.parser import HTMLParser

import pytest
import torch
from rich.console import Console
from torch import nn

import truestep as ts

NAME = "[red]<b>net</b>"


class Words(HTMLParser):
    """The words of a piece of HTML, and its elements."""

    def __init__(self, html):
        super().__init__()
        self.words, self.elements = "", set()
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.add(tag)

    def handle_data(self, data):
        self.words += data


@pytest.fixture
def trained(tmp_path):
    """Return a run at its end, its data and its last update."""
    run = ts.Run(tmp_path / NAME.replace("/", "-"), seed=0, progress=False, quiet=True, doctor=False)
    net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1), name=NAME)
    source = run.data(torch.ones(64, 2), batch_size=8, shuffle=True)
    for _ in run.epochs(1):
        for batch in run.batches(source):
            update = net.update(lambda x: net(x).square().squeeze(1), batch)
        run.log(accuracy=0.5)
    return run, source, update


@pytest.mark.parametrize("pick", [lambda run: run, lambda run: run.choices()], ids=["run", "choices"])
def test_names_are_text_in_a_notebook_and_in_a_terminal(trained, pick):
    shown = pick(trained[0])
    html = Words(shown._repr_html_())
    assert NAME in html.words
    assert html.elements <= {"pre", "span"}
    console = Console(width=200, color_system=None)
    with console.capture() as captured:
        console.print(shown)
    assert NAME in captured.get()


def test_a_run_says_where_it_stands_and_what_it_trains_on(trained):
    words = " ".join(Words(trained[0]._repr_html_()).words.split())
    for each in (
        "step 8, 1 epoch done",
        "float32 on",
        "seed 0",
        "3 parameters",
        "64 samples, 8 batches of 8",
        "accuracy 0.5000",
    ):
        assert each in words, each
    assert "memory_bytes" not in words


def test_data_and_an_update_are_one_line(trained):
    _, source, update = trained
    assert repr(source) == "MemorySource(64 samples, 8 batches of 8, shuffled)"
    assert repr(update).startswith("Update(loss=")
    assert "\n" not in repr(update)


def test_data_of_unknown_length_says_so(tmp_path):
    run = ts.Run(tmp_path / "run", progress=False, quiet=True)
    assert (
        repr(run.data(iter([torch.ones(2)] * 4), batch_size=2))
        == "StreamSource(samples of unknown number, batches of 2)"
    )


def test_an_update_shows_its_named_values(tmp_path):
    run = ts.Run(tmp_path / "run", progress=False, quiet=True)
    net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1))

    def loss(x):
        values = net(x).square().squeeze(1)
        return ts.weighted(values, torch.ones(4), size=torch.full((4,), 2.0))

    assert "size=2, skipped=False" in repr(net.update(loss, torch.ones(4, 2)))
