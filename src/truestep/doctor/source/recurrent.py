# SPDX-License-Identifier: Apache-2.0
"""Which recurrent layer a value came out of, and as what."""

import ast

from truestep.doctor.library.functions import functions
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import sources, value_origins

_LAYERS = functions("is a recurrent layer")


def recurrent_of(module: SourceModule, node: ast.expr, place: tuple[int, ...]) -> ast.Call | None:
    """Return `nn.LSTM(...)` if a name stands for this place of its result and nothing else.

    Place (0,) is the outputs, (1,) the final state of a GRU or RNN, (1, 0) the hidden one of an LSTM.
    """
    if not isinstance(node, ast.Name):
        return None
    found = list(sources(module, node))
    if len(found) != 1 or found[0][1] != place or not isinstance(found[0][0], ast.Call):
        return None
    layer = found[0][0].func
    made = list(value_origins(module, layer)) if isinstance(layer, ast.Name | ast.Attribute) else [layer]
    if len(made) == 1 and isinstance(made[0], ast.Call) and module.qualify(made[0].func) in _LAYERS:
        wanted = 2 if module.qualify(made[0].func) == "torch.nn.LSTM" else 1
        return made[0] if place == (0,) or len(place) == wanted else None
    return None
