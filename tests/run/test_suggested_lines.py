# SPDX-License-Identifier: Apache-2.0
"""Every line of code that a message suggests is one that Python reads, whatever a metric, a state or a folder is called."""

import ast
import copy
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import truestep as ts
from truestep.core.text_formatting import keyword_text, literal_text, variable_text
from truestep.report.metrics import is_metric_name

CODE = re.compile(r"\b(?:run|ts|net|numpy|torch|copy|self)(?:\.\w+)+\(")
MEANT = ['a"b', "a'b", "a{b}", "{", "}", "a\\b", "a\\", "\"'", "return", "class", "None", "__debug__", "a=b", "a)", "(a", "é", "ﬁ",
         "loss/train", "2nd", "f'{x}'", "%s", "#", " ", '"""', "a, b"]  # fmt: skip
NAMES = st.one_of(
    st.sampled_from(MEANT),
    st.lists(st.sampled_from([*MEANT, "loss", "_", "/", " "]), min_size=1, max_size=4).map("".join),
    st.text(min_size=1, max_size=12),
).filter(is_metric_name)


class Figure:
    """What matplotlib's has that its pixels are read by."""

    canvas = None


class Axes:
    figure = Figure()


class Picture:
    """What an image of PIL's has: neither a shape nor a length."""

    __array_interface__ = {}  # noqa: RUF012


VALUES = [
    None, "", "0.5", "a text", 'a "text"', "x.png", "x.wav", b"x", Path("x.JPG"), 1j, [], [1.0, 2.0], (), {1, 2}, {}, {"a": 1},
    {'a"b': {}}, torch.rand(3), torch.rand(3, 8, 8), torch.rand(8, 8, 4), torch.rand(0), torch.zeros(2, 2, dtype=torch.complex64),
    torch.zeros(3, 4, dtype=torch.long), np.zeros((2, 8, 8, 1)), np.zeros((4, 4)), [torch.rand(3, 4, 4)] * 2, [torch.rand(2)] * 2,
    Figure(), Axes(), Picture(), nn.Linear, nn.Linear(1, 1), print, object(), range(3),
]  # fmt: skip


def codes(message):
    """Return the calls that a message shows, each as Python reads it; fails for one that it does not read."""
    found, at = [], 0
    while (begun := CODE.search(message, at)) is not None:
        for end in (each.end() for each in re.finditer(r"\)", message[begun.start() :])):
            text = message[begun.start() : begun.start() + end]
            try:
                found.append(ast.parse(text.replace(", say", ""), mode="eval").body)
            except SyntaxError:
                continue
            at = begun.start() + end
            break
        else:
            raise AssertionError(f"no line of Python begins at {message[begun.start() :]!r}")
    return found


def names_given(call):
    """Return the names that a call gives its values, as the called function sees them."""
    spread = [each.value for each in call.keywords if each.arg is None]
    literal = [
        key.value
        for each in spread
        if isinstance(each, ast.Dict)
        for key in each.keys
        if isinstance(key, ast.Constant)
    ]
    return [each.arg for each in call.keywords if each.arg] + literal


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    with ts.Run(
        tmp_path_factory.mktemp("run"), device="cpu", progress=False, quiet=True, doctor=False
    ) as run:
        net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1), name="net")
        yield run, net


def refusal(call, *arguments, **options):
    with pytest.raises(ts.TruestepError) as caught:
        call(*arguments, **options)
    return str(caught.value)


@settings(max_examples=60)
@given(name=NAMES, value=st.sampled_from(VALUES))
def test_lines_of_what_was_logged_are_read_and_keep_the_name(training, name, value):
    message = refusal(training[0].log, **{name: value})
    calls = [each for each in codes(message) if ast.unparse(each.func) == "run.log"]
    assert len(calls) >= 2, message  # what was written, and what to write
    assert {name for each in calls for name in names_given(each)} <= {name, f"{name}/"}
    assert f"run.log({keyword_text(name)})" in message


@settings(max_examples=30)
@given(name=NAMES)
def test_lines_of_what_is_logged_without_a_name_or_in_a_loss_are_read(training, name):
    run, net = training
    for given_values in ((name, 0.5), ({name: 0.5},)):
        assert names_given(codes(refusal(run.log, *given_values))[0]) == [name]

    def loss(batch):
        run.log(**{name: 0.5})
        return net(batch)[:, 0]

    assert names_given(codes(refusal(net.update, loss, torch.ones(2, 2)))[0]) == [name]


@settings(max_examples=40)
@given(name=NAMES, tracked=st.sampled_from([1, nn.Linear, object(), "x"]))
def test_lines_of_what_is_tracked_are_read(training, name, tracked):
    if name == "per_rank":
        return
    assert names_given(codes(refusal(training[0].track, **{name: tracked}))[0]) == [name]


@settings(max_examples=30)
@given(name=NAMES)
def test_lines_of_outputs_are_read(name):
    calls = codes(refusal(ts.weighted, torch.ones(2), outputs={name: torch.tensor(1.0)}))
    assert names_given(calls[-1]) == [name]


@settings(max_examples=30)
@given(name=NAMES.filter(lambda name: "?" not in name and not name.startswith("/")))
def test_lines_of_addresses_are_read(name):
    for scheme in ("s3", "file", "ftp"):
        assert codes(refusal(ts.Run, f"{scheme}://bucket/{name}"))


@given(name=st.text(max_size=12))
def test_a_name_is_written_as_python_reads_it(name):
    assert ast.literal_eval(literal_text(name)) == name
    call = ast.parse(f"call({keyword_text(name, '1')})", mode="eval").body
    assert names_given(call) == [name]
    exec(f"{variable_text(name, 'net')} = 1", copy.copy({}))
