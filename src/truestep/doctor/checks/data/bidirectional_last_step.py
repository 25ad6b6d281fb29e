# SPDX-License-Identifier: Apache-2.0
"""The last output of a bidirectional recurrent net."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.value_origins import (
    argument,
    constant,
    literal,
    resolve_expression,
    value_origins,
    value_sources,
)

_LAYERS = functions("is a recurrent layer")


class BidirectionalLastStep(SourceCheck):
    """The last step of a bidirectional LSTM's outputs stands for the sequence.

    Why: at the last step the backward direction has seen that one step only: half of the features know
    next to nothing.

    Bad:
        lstm = nn.LSTM(4, 8, bidirectional=True, batch_first=True)
        outputs, (h, c) = lstm(x)
        last = outputs[:, -1]  # here

    Good:
        lstm = nn.LSTM(4, 8, bidirectional=True, batch_first=True)
        outputs, (h, c) = lstm(x)
        last = torch.cat([h[-2], h[-1]], 1)

    Fix: torch.cat([h[-2], h[-1]], 1) of the final hidden state holds the end of both directions.

    Evidence: 649453932/Chinese-Text-Classification-Pytorch 6cb26819 models/TextRNN.py:57; corpus, beds E, K, L,
    N, Q, W, X: 9 true, 1 false.
    """

    code = "DATA030"
    words = ("bidirectional",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `outputs[-1]`, or `outputs[:, -1]` with batch_first, of one that is bidirectional."""
        for node in module.all(ast.Subscript):
            made = (
                _source_recurrent_layer(module, node.value, (0,)) if isinstance(node.ctx, ast.Load) else None
            )
            if made is None or literal(module, argument(made, None, "bidirectional")) is not True:
                continue
            batch_first = literal(module, argument(made, None, "batch_first")) is True
            if _is_last_step_index(node.slice, batch_first) and not _is_of_one_step(
                module, node.value, batch_first
            ):
                yield At(node, "The backward direction has seen one step of the sequence here.", RISK)


def _is_of_one_step(module: SourceModule, outputs: ast.expr, batch_first: bool) -> bool:
    """Tell a sequence of one step, `x.unsqueeze(1)`, here or of all rows that the program makes tensor sets of."""
    axis = 1 if batch_first else 0
    calls = [each for each, _ in value_sources(module, outputs) if isinstance(each, ast.Call)]
    if any(_is_unsqueezed(module, part, axis) for each in calls for part in each.args[:1]):
        return True
    if not calls or not all(each.args and _is_parameter(module, each.args[0]) for each in calls):
        return False
    sets = [
        (file, each)
        for file in module.program.linked
        for each in file.calls("torch.utils.data.TensorDataset")
    ]
    return (
        batch_first
        and bool(sets)
        and all(bool(each.args) and _is_unsqueezed(file, each.args[0], axis) for file, each in sets)
    )


def _is_parameter(module: SourceModule, node: ast.expr) -> bool:
    """Tell what a function is given and hands on as it is: nothing exchanged its axes."""
    made = module.resolver.reaching(node) if isinstance(node, ast.Name) else []
    return bool(made) and all(each.how == "parameter" for each in made)


def _is_unsqueezed(module: SourceModule, node: ast.expr, axis: int) -> bool:
    made = resolve_expression(module, node)
    while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute):
        is_function = (module.qualify(made.func) or "").startswith("torch.")
        if made.func.attr == "unsqueeze":
            return bool(constant(argument(made, 1 if is_function else 0, "dim")) == axis)
        made = None if is_function else made.func.value
    return False


def _is_last_step_index(index: ast.expr, batch_first: bool) -> bool:
    if not isinstance(index, ast.Tuple):
        return constant(index) == -1 and not batch_first
    place = 1 if batch_first else 0
    whole = [each for each in index.elts if isinstance(each, ast.Slice) and each.lower is each.upper is None]
    return (
        len(index.elts) > place
        and constant(index.elts[place]) == -1
        and len(whole) == len(index.elts) - 1  # [:, -1, :8] takes one direction: that may be meant
    )


def _source_recurrent_layer(module: SourceModule, node: ast.expr, place: tuple[int, ...]) -> ast.Call | None:
    """Return `nn.LSTM(...)` if a name stands for this place of its result and nothing else.

    Place (0,) is the outputs, (1,) the final state of a GRU or RNN, (1, 0) the hidden one of an LSTM.
    """
    if not isinstance(node, ast.Name):
        return None
    found = list(value_sources(module, node))
    if len(found) != 1 or found[0][1] != place or not isinstance(found[0][0], ast.Call):
        return None
    layer = found[0][0].func
    made = list(value_origins(module, layer)) if isinstance(layer, (ast.Name, ast.Attribute)) else [layer]
    if len(made) == 1 and isinstance(made[0], ast.Call) and module.qualify(made[0].func) in _LAYERS:
        wanted = 2 if module.qualify(made[0].func) == "torch.nn.LSTM" else 1
        return made[0] if place == (0,) or len(place) == wanted else None
    return None
