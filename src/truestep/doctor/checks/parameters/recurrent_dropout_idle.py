# SPDX-License-Identifier: Apache-2.0
"""Dropout in a recurrent net of one layer."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, constant, forwards_all, literal


class RecurrentDropoutIdle(SourceCheck):
    """An LSTM, GRU or RNN of one layer is given dropout.

    Why: it acts between layers, not after the last one: with one layer nothing is ever dropped.

    Bad:
        rnn = nn.LSTM(4, 8, dropout=0.5)  # here

    Good:
        rnn = nn.LSTM(4, 8, num_layers=2, dropout=0.5)

    Fix: an nn.Dropout on its outputs, or more layers.

    Evidence: graykode/nlp-tutorial d05e31ec 4-1.Seq2Seq/Seq2Seq.py:47; graykode/nlp-tutorial d05e31ec
    4-2.Seq2Seq(Attention)/Seq2Seq(Attention).py:25.
    """

    code = "PARAM032"
    words = ("dropout=",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a literal rate above 0 where the number of layers is 1."""
        for call in module.calls("torch.nn.LSTM", "torch.nn.GRU", "torch.nn.RNN"):
            rate = literal(module, argument(call, None, "dropout"))
            if isinstance(rate, float) and rate > 0 and not forwards_all(call) and self._one(module, call):
                yield At(call, f"dropout={rate} has no effect: there is one layer.", RISK)

    def _one(self, module: SourceModule, call: ast.Call) -> bool:
        given = argument(call, 2, "num_layers")
        if isinstance(given, (ast.Name, ast.Attribute)):
            values = module.definitions(given)
            return bool(values) and all(constant(each) == 1 for each in values)
        return given is None or constant(given) == 1
