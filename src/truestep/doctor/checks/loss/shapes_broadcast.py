# SPDX-License-Identifier: Apache-2.0
"""A loss, or a comparison with labels, over shapes that don't match."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.finding import Place
from truestep.doctor.library.losses import loss_function_names
from truestep.doctor.library.operations import operations
from truestep.doctor.runtime.bootstrap_targets import (
    difference_nodes,
)
from truestep.doctor.runtime.history import LossCall
from truestep.doctor.runtime.loss_term_signs import shape_of_node
from truestep.doctor.source.losses import loss_calls
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.row_column_shapes import (
    COLUMN,
    ROW,
    is_meant_table,
    row_or_column,
    row_or_column_with,
)
from truestep.doctor.source.value_origins import argument, resolve_expression, value_origins
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory
    from truestep.doctor.runtime.value_origins import WatchedOrigin

_DIFFERENCES = ("sub", "rsub", "subtract")
_MOST = 16  # differences of one step that are kept
# what turns outputs into predictions; labels beside labels are compared each with each by right
_DECIDES = operations(numbers="ordered chosen index stepped")
ELEMENTWISE = loss_function_names(target="numbers")


class ShapesBroadcast(SourceCheck, Watcher):
    """The prediction and the target of a loss or of a metric have different shapes, and are broadcast.

    Why: (n, 1) against (n,) becomes (n, n): every prediction is compared with every target, so the model learns
    to answer the mean of all targets. A product under a mean, log_probability * advantage, so has every
    advantage meet every probability. An accuracy of (n, n) comparisons can exceed 1.

    Bad:
        head = nn.Linear(4, 1)
        target = y.float().view(-1)
        loss = F.mse_loss(head(x), target)  # here

    Good:
        head = nn.Linear(4, 1)
        target = y.float().view(-1)
        loss = F.mse_loss(head(x).squeeze(1), target)

    Fix: give both one shape, with prediction.squeeze(1) or target.unsqueeze(1); assert that the shapes are equal.

    Evidence: the plain form of rows 40 and 52 of docs/mistakes.md; 186 repositories, beds L, P, Q: 4 true, 6
    false.
    """

    code = "LOSS017"
    words = ("loss", "Loss", "pow", "** 2", "unsqueeze", "view(-1, 1)", "reshape(-1, 1)", "[:, None]")

    def __init__(self) -> None:
        self._sides: deque[tuple[Any, list[tuple[int, ...]], Place]] = deque(maxlen=_MOST)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a loss, or a square of a difference, of a row and a column that are both in sight."""
        for call in loss_calls(module, *ELEMENTWISE):
            given, target = argument(call, 0, "input"), argument(call, 1, "target")
            if given is None or target is None:
                continue
            are_both_seen = {row_or_column_with(module, each) for each in (given, target)} == {ROW, COLUMN}
            if are_both_seen or (_is_squeezed(module, given) and _can_be_column(module, target)):
                yield At(call, _TEXT, RISK)
        for node in module.all(ast.BinOp):
            if (
                isinstance(node.op, ast.Sub)
                and _is_squared_or_absolute(module, node)
                and _is_row_against_column(module, node.left, node.right)
                and not is_meant_table(module, node)
            ):
                yield At(node, _TEXT, RISK)
        for compared, left, right in _equality_comparisons(module):
            if _is_row_against_column(module, left, right) and not any(
                _is_range_of_indices(module, each) for each in (left, right)
            ):
                text = "(batch,) is compared with (batch, 1): each prediction with every label."
                yield At(compared, text, RISK)

    def on_loss(self, history: WatchHistory, loss: LossCall) -> Observations:
        """Report shapes that differ, unless one of them is a single number."""
        given, target = tuple(loss.input.shape), tuple(loss.target.shape)
        if loss.name in ELEMENTWISE and given != target and min(loss.input.numel(), loss.target.numel()) > 1:
            evidence = {"prediction": given, "target": target}
            yield Observation(loss.place, f"{loss.name} broadcasts {given} against {target}.", BUG, evidence)

    def on_operation(
        self, history: WatchHistory, origin: WatchedOrigin, given: list[Tensor], result: Any
    ) -> Observations:
        """Report a comparison that made a square of a row and a column; keep what a difference of all with all was made of.

        The graph does not know what carries none.
        """
        if origin.operation in ("eq", "ne") and len(given) == 2:
            first, second = sorted((tuple(each.shape) for each in given), key=len)
            is_square = len(first) == 1 and first[0] > 1 and second == (first[0], 1)
            if is_square and any(
                each.operation in _DECIDES for made in origin.before for each in made.ancestors()
            ):
                text = f"{first} is compared with {second}: each prediction with every label."
                yield Observation(origin.place, text, BUG, {"compared": [first, second]})
        if origin.operation in _DIFFERENCES and _is_square_with_graph(result) and len(given) == 2:
            shapes = [] if _is_from_same_storage(given) else [tuple(each.shape) for each in given]
            self._sides.append((result.grad_fn, shapes, origin.place))

    def on_objective(self, history: WatchHistory, tensors: tuple[Tensor, ...], place: Place) -> Observations:
        """Report `((output - target) ** 2).mean()`, written by hand, whose difference is larger than both; in any term."""
        for tensor in tensors:
            for node in difference_nodes(tensor.grad_fn):
                known = next((each for each in self._sides if each[0] is node), (node, None, None))
                found = _shapes_of_outer_difference(node, known[1])
                if found is not None:
                    given, made = found
                    where = known[2] or history.origins.nearest(tensor, "sub", "rsub") or place
                    text = (
                        f"A difference broadcasts {given} to {made}: every prediction against every target."
                    )
                    yield Observation(where, text, BUG, {"prediction": given, "difference": made})
        self._sides.clear()

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> None:
        """Forget the differences of the step."""
        self._sides.clear()


_TEXT = "(batch,) meets (batch, 1): every prediction is compared with every target."


def _is_row_against_column(module: SourceModule, first: ast.expr, second: ast.expr) -> bool:
    return {row_or_column(module, first), row_or_column(module, second)} == {ROW, COLUMN}


def _is_squeezed(module: SourceModule, node: ast.expr) -> bool:
    """Tell `output.squeeze(1)`, whatever the output was: (batch, 1) is (batch,) then."""
    made = resolve_expression(module, node)
    if (
        not isinstance(made, ast.Call)
        or not isinstance(made.func, ast.Attribute)
        or made.func.attr != "squeeze"
    ):
        return False
    return [ast.unparse(each) for each in made.args] in (["1"], ["-1"])


def _can_be_column(module: SourceModule, node: ast.expr) -> bool:
    """Tell what was made a column on one of the ways here."""
    ways = module.definitions(node) if isinstance(node, ast.Name) else [node]
    return any(each is not None and row_or_column(module, each) == COLUMN for each in ways)


def _is_squared_or_absolute(module: SourceModule, node: ast.expr) -> bool:
    """Tell `(a - b) ** 2`, `(a - b).pow(2)`, `(a - b).abs()` and `torch.abs(a - b)`, there or under its name."""
    above = module.parents[node]
    if isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Name):
        reads = module.reads(above.targets[0].id)
        return any(
            _is_squared_or_absolute(module, each) for each in reads if module.definitions(each) == [node]
        )
    if isinstance(above, ast.Attribute):
        return above.attr in ("pow", "abs", "square")
    if isinstance(above, ast.Call):
        return module.qualify(above.func) in ("torch.abs", "torch.square", "torch.pow")
    return isinstance(above, ast.BinOp) and isinstance(above.op, ast.Pow)


def _is_square_with_graph(result: Any) -> bool:
    """Tell a result of (n, n) that carries a graph."""
    shape = tuple(result.shape) if getattr(result, "grad_fn", None) is not None else ()
    return len(shape) == 2 and shape[0] == shape[1] > 1


def _is_from_same_storage(given: list[Tensor]) -> bool:
    """Tell `scores.unsqueeze(1) - scores`: all with all is meant."""
    starts = {(each.untyped_storage()._cdata, each.storage_offset()) for each in given}
    return len(starts) == 1


def _shapes_of_outer_difference(
    node: Any, sides: list[tuple[int, ...]] | None
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the shapes of the column and of what was made, where (n, 1) meets (n,)."""
    made = shape_of_node(node)
    given = [shape_of_node(each) for each, _ in node.next_functions] if sides is None else sides
    if made is None or len(made) != 2 or made[0] != made[1] or made[0] < 2:
        return None
    column = (made[0], 1)
    return (column, made) if column in given and not {*given} - {column, made[:1], None} else None


def _is_range_of_indices(module: SourceModule, node: ast.expr) -> bool:
    """Tell `torch.arange(n)`: it has a number for each class, not for each example."""
    made = [each for each in value_origins(module, node) if isinstance(each, ast.Call)]
    counted = operations(shape="counted")
    return any((module.qualify(each.func) or "").removeprefix("torch.") in counted for each in made)


def _equality_comparisons(module: SourceModule) -> Iterator[tuple[ast.expr, ast.expr, ast.expr]]:
    for node in module.all(ast.Compare):
        if len(node.ops) == 1 and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            yield node, node.left, node.comparators[0]
    for call in [*module.method_calls("eq", "ne"), *module.calls("torch.eq", "torch.ne")]:
        assert isinstance(call.func, ast.Attribute)
        if len(call.args) == 2:
            yield call, call.args[0], call.args[1]
        elif len(call.args) == 1:
            yield call, call.func.value, call.args[0]
