# SPDX-License-Identifier: Apache-2.0
"""The final hidden state cut anew."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.library.operations import operations
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.recurrent import recurrent_of
from truestep.doctor.source.signatures import own_name
from truestep.doctor.source.values import argument, constant, literal

_TURNS = operations(shape="turned")


class HiddenStateViewed(SourceCheck):
    """view or reshape puts the batch first in the hidden state of several layers or directions.

    Why: its axes are (layers and directions, batch, features): the features of different examples come
    into one row.

    Bad:
        lstm = nn.LSTM(4, 8, bidirectional=True)
        _, (h, c) = lstm(x)
        features = h.view(-1, 16)  # here

    Good:
        lstm = nn.LSTM(4, 8, bidirectional=True)
        _, (h, c) = lstm(x)
        features = h.transpose(0, 1).reshape(-1, 16)

    Fix: h.transpose(0, 1) first, or torch.cat([h[-2], h[-1]], 1).
    """

    code = "DATA031"
    words = ("LSTM", "GRU", "RNN")
    shows_as = ("DATA015",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a view of a final state whose first size is no number and whose rows are wider than it."""
        for call in module.method_calls("view", "reshape"):
            assert isinstance(call.func, ast.Attribute)
            made = self._recurrent(module, call.func.value)
            if made is not None and _several(module, made) and self._mixes(made, call):
                yield At(call, "The states of different examples come into one row: transpose(0, 1) first.")

    def _recurrent(self, module: SourceModule, node: ast.expr) -> ast.Call | None:
        if not isinstance(node, ast.Name) or _is_turned(module, node):
            return None
        return recurrent_of(module, node, (1,)) or recurrent_of(module, node, (1, 0))

    def _mixes(self, made: ast.Call, view: ast.Call) -> bool:
        sizes = view.args[0].elts if view.args and isinstance(view.args[0], ast.Tuple) else view.args
        if len(sizes) < 2 or (isinstance(constant(sizes[0]), int) and constant(sizes[0]) > 0):
            return False
        hidden = argument(made, 1, "hidden_size")
        same = hidden is not None and ast.unparse(sizes[1]) == ast.unparse(hidden)
        layers = ast.unparse(sizes[0]).replace("self.", "")
        return not same and "layer" not in layers and "direction" not in layers


def _is_turned(module: SourceModule, node: ast.Name) -> bool:
    """Tell `h.transpose(0, 1)` under a name, of its own or the old one: the examples come first then."""
    given = [each.value for each in module.bindings(node) if isinstance(each.value, ast.Call)]
    return any(
        own_name(each.func) in _TURNS for value in given for each in walk(value) if isinstance(each, ast.Call)
    )


def _several(module: SourceModule, made: ast.Call) -> bool:
    layers = literal(module, argument(made, 2, "num_layers"))
    both = literal(module, argument(made, None, "bidirectional")) is True
    return both or (isinstance(layers, int) and layers > 1)
