# SPDX-License-Identifier: Apache-2.0
"""A recurrent layer that runs over the batch."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, with_keyword
from truestep.doctor.source.values import argument, constant, forwards_all

RECURRENT = functions("is a recurrent layer")
REARRANGE = operations(shape="turned")


class RecurrenceOverBatch(SourceCheck):
    """The last step of a recurrent layer is read as out[:, -1], but the layer is not batch_first.

    Why: without batch_first the first axis is time: the layer runs over the examples of the batch, and
    the last example's state is taken for the last step's.

    Bad:
        class Tagger(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn = nn.LSTM(8, 16)
                self.head = nn.Linear(16, 3)

            def forward(self, x):
                out, _ = self.rnn(x)
                return self.head(out[:, -1])  # here

    Good:
        class Tagger(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn = nn.LSTM(8, 16, batch_first=True)
                self.head = nn.Linear(16, 3)

            def forward(self, x):
                out, _ = self.rnn(x)
                return self.head(out[:, -1])

    Fix: batch_first=True for inputs of shape (batch, time, features); else out[-1].
    """

    code = "DATA022"
    words = ("LSTM", "GRU", "RNN")
    shows_as = ("DATA015",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the index in the function that applies the layer, if nothing there exchanges axes."""
        for node in module.all(ast.Subscript):
            if isinstance(node.value, ast.Name) and _last_of_second_axis(node.slice):
                layers = self._layers(module, node.value)
                if layers and all(_time_first(module, each) for each in layers) and not _turned(module, node):
                    yield At(node, "The layer is not batch_first: this is the last example, not step.", RISK)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Make the layers batch_first."""
        return [
            with_keyword(module, each, "batch_first", "True") for each in self._layers(module, node.value)
        ]

    def _layers(self, module: SourceModule, name: ast.Name) -> list[ast.Call]:
        """Return the constructors of the layers that a name may be the output of."""
        found: list[ast.Call] = []
        for binding in module.bindings(name):
            applied = binding.value
            if not isinstance(applied, ast.Call):
                return []
            made = [each for each in module.definitions(applied.func) if isinstance(each, ast.Call)]
            if not made:
                return []
            found += made
        return found


def _last_of_second_axis(index: ast.expr) -> bool:
    if not isinstance(index, ast.Tuple) or len(index.elts) < 2:
        return False
    first, second = index.elts[:2]
    whole = isinstance(first, ast.Slice) and first.lower is first.upper is first.step is None
    return whole and constant(second) == -1


def _time_first(module: SourceModule, call: ast.Call) -> bool:
    given = argument(call, None, "batch_first")
    absent = given is None or constant(given) is False
    return module.qualify(call.func) in RECURRENT and absent and not forwards_all(call) and len(call.args) < 5


def _turned(module: SourceModule, node: ast.AST) -> bool:
    """Tell whether the function exchanges axes: then the second may be time after all."""
    home = module.scope(node)
    return any(module.scope(call) is home for call in module.method_calls(*sorted(REARRANGE)))
