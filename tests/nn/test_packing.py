# SPDX-License-Identifier: Apache-2.0
"""Packed sequences give what each gives alone, in the caller's order."""

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.core.errors import BatchError, OptionError

LAYERS = [
    pytest.param(lambda f: nn.LSTM(3, 4, batch_first=f), id="lstm"),
    pytest.param(lambda f: nn.LSTM(3, 4, 2, bidirectional=True, batch_first=f), id="bidirectional"),
    pytest.param(lambda f: nn.LSTM(3, 4, proj_size=2, batch_first=f), id="projected"),
    pytest.param(lambda f: nn.GRU(3, 4, 2, batch_first=f), id="gru"),
    pytest.param(lambda f: nn.RNN(3, 4, bidirectional=True, batch_first=f), id="rnn"),
]


def states_of(state):
    return state if isinstance(state, tuple) else (state,)


@pytest.mark.parametrize("make", LAYERS)
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("lengths", [[2, 5, 1, 5], [5, 4, 3, 1], [1, 2, 3, 3]])
def test_outputs_and_states_are_those_of_each_sequence_alone(make, batch_first, lengths):
    torch.manual_seed(0)
    rnn = make(batch_first).double()
    inputs = torch.randn(4, 6, 3, dtype=torch.float64)
    outputs, state = ts.packed(rnn, inputs if batch_first else inputs.transpose(0, 1), lengths)
    outputs = outputs if batch_first else outputs.transpose(0, 1)
    assert outputs.shape[:2] == (4, 6)
    for row, length in enumerate(lengths):
        one = inputs[row : row + 1, :length]
        alone, last = rnn(one if batch_first else one.transpose(0, 1))
        alone = alone if batch_first else alone.transpose(0, 1)
        torch.testing.assert_close(outputs[row, :length], alone[0], rtol=1e-12, atol=1e-12)
        assert (outputs[row, length:] == 0).all()
        for mine, its in zip(states_of(state), states_of(last), strict=True):
            torch.testing.assert_close(mine[:, row], its[:, 0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", LAYERS)
def test_first_states_stand_in_the_callers_order(make):
    torch.manual_seed(0)
    rnn, inputs, lengths = (
        make(True).double(),
        torch.randn(3, 4, 3, dtype=torch.float64),
        torch.tensor([1, 4, 2]),
    )
    _, shaped = ts.packed(rnn, inputs, lengths)
    first = tuple(torch.randn_like(each) for each in states_of(shaped))
    state = first if isinstance(rnn, nn.LSTM) else first[0]
    outputs, _ = ts.packed(rnn, inputs, lengths, state)
    row = tuple(each[:, 1:2].contiguous() for each in first)
    alone, _ = rnn(inputs[1:2], row if isinstance(rnn, nn.LSTM) else row[0])
    torch.testing.assert_close(outputs[1], alone[0], rtol=1e-12, atol=1e-12)


def test_padding_gets_no_gradient_and_does_not_matter():
    rnn, lengths = nn.GRU(3, 4, batch_first=True), [2, 3]
    inputs = torch.randn(2, 3, 3, requires_grad=True)
    outputs, _ = ts.packed(rnn, inputs, lengths)
    outputs.sum().backward()
    assert (inputs.grad[0, 2] == 0).all()
    spoilt = inputs.detach().clone()
    spoilt[0, 2] = float("nan")
    torch.testing.assert_close(ts.packed(rnn, spoilt, lengths)[0], outputs)


@pytest.mark.parametrize(
    ("inputs", "lengths", "message"),
    [
        (torch.randn(2, 3, 3), [0, 3], "leave|Leave empty sequences out"),
        (torch.randn(2, 3, 3), [2, 4], "padded to 3 steps"),
        (torch.randn(2, 3, 3), [2], r"shape \(2,\)"),
        (torch.randn(2, 3, 3), [2.0, 3.0], "whole numbers"),
        (torch.randn(2, 3, 3), torch.tensor([True, False]), "whole numbers"),
        (torch.randn(3, 3), [3], "alone needs no packing"),
    ],
)
def test_lengths_that_can_not_be_are_refused(inputs, lengths, message):
    with pytest.raises(BatchError, match=message):
        ts.packed(nn.GRU(3, 4, batch_first=True), inputs, lengths)


def test_other_layers_are_refused():
    with pytest.raises(OptionError, match="Linear"):
        ts.packed(nn.Linear(3, 3), torch.randn(2, 3, 3), [1, 2])
