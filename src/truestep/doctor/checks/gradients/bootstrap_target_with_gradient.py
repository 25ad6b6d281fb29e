# SPDX-License-Identifier: Apache-2.0
"""A target that moves towards its prediction."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.finding import Place
from truestep.doctor.library.losses import loss_function_names
from truestep.doctor.source.loss_modules import calls_with_graph, is_model_call, is_without_grad
from truestep.doctor.source.losses import loses_graph, loss_calls
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.value_origins import argument
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor, nn

    from truestep.doctor.runtime.history import ForwardCall, LossCall, OptimizerRecord, WatchHistory

_LOSSES = loss_function_names(given="numbers")
_OF_RETURNS = re.compile(r"gamma|discount|reward|returns?\b|done|terminal|\b0?[.]9\d*\b", re.I)
_MOST = 16  # applications of one step that are kept
_TEXT = "The target is computed from {}'s own answer, with its gradient: the loss also moves the target towards the prediction."


class BootstrapTargetWithGradient(SourceCheck, Watcher):
    """A target such as reward + gamma * net(next_state) keeps its gradient, in an error of the same net.

    Why: the error is made small by moving the target, too. That is another gradient than that of Q-learning or of temporal
    differences, and it converges to other values.

    Bad:
        q = nn.Linear(4, 2)
        rewards, gamma = torch.ones(8), 0.99
        target = rewards + gamma * q(x + 1).max(1).values
        loss = F.mse_loss(q(x)[:, 0], target)  # here
        loss.backward()

    Good:
        q = nn.Linear(4, 2)
        rewards, gamma = torch.ones(8), 0.99
        with torch.no_grad():
            target = rewards + gamma * q(x + 1).max(1).values
        loss = F.mse_loss(q(x)[:, 0], target)
        loss.backward()

    Fix: compute the target under torch.no_grad(), or target.detach(); from a copy of the net that is updated now and then,
    training is steadier.

    Evidence: two of ten public files with such a line, found by searching for it, lack the detach; bed S: 1
    true, 0 false.
    """

    code = "GRAD067"
    words = ("loss", "Loss", "pow", "** 2")

    def __init__(self) -> None:
        self._answers: deque[tuple[Any, nn.Module, str]] = deque(maxlen=_MOST)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an error of a model whose other side is a sum of something known and a share of that model's answer."""
        for node, sides in _errors_with_sides(module):
            for given, target in (sides, sides[::-1]):
                model = _model_behind_bootstrap_target(module, given, target)
                if model is not None and not is_without_grad(module, node):
                    yield At(node, _TEXT.format(model), RISK)
                    break

    def on_forward(self, history: WatchHistory, forward: ForwardCall) -> None:
        """Keep the node of what a model answered with its graph."""
        from truestep.doctor.runtime.tensor_queries import first_watched_tensor

        answer = first_watched_tensor(forward.output) if history.is_in_first_steps else None
        if answer is not None and answer.grad_fn is not None:
            self._answers.append((answer.grad_fn, forward.module, forward.variable))

    def on_loss(self, history: WatchHistory, loss: LossCall) -> Observations:
        """Report such a call of one of torch's losses."""
        if history.is_in_first_steps and loss.name in _LOSSES:
            yield from self._report_findings([(loss.input.grad_fn, loss.target.grad_fn)], loss.place)

    def on_objective(self, history: WatchHistory, tensors: tuple[Tensor, ...], place: Place) -> Observations:
        """Report such a difference that is squared by hand."""
        if history.is_in_first_steps:
            from truestep.doctor.runtime.bootstrap_targets import squared_difference_sides

            for root in tensors:
                yield from self._report_findings(
                    squared_difference_sides(root.grad_fn),
                    history.origins.nearest(root, "sub", "rsub") or place,
                )
        self._answers.clear()

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> None:
        """Forget the answers of the step."""
        self._answers.clear()

    def _report_findings(self, errors: Iterable[tuple[Any, Any]], place: Place) -> Observations:
        for sides in errors:
            model = _model_of_both_sides(sides, tuple(self._answers)) if None not in sides else None
            if model is not None:
                yield Observation(place, _TEXT.format(model), RISK, {"model": model})
                return


def _errors_with_sides(module: SourceModule) -> Iterator[tuple[ast.expr, tuple[ast.expr, ast.expr]]]:
    """Yield the errors of a file, each with its two sides: losses of torch, and squares of a difference."""
    for call in loss_calls(module, *_LOSSES):
        given, target = argument(call, 0, "input"), argument(call, 1, "target")
        if given is not None and target is not None:
            yield call, (given, target)
    for node in module.all(ast.BinOp):
        above = module.parents[node]
        if isinstance(above, ast.Attribute):
            is_square = above.attr in ("pow", "square")
        else:
            is_square = isinstance(above, ast.BinOp) and isinstance(above.op, ast.Pow) and above.left is node
        if is_square and isinstance(node.op, ast.Sub):
            yield node, (node.left, node.right)


def _model_behind_bootstrap_target(module: SourceModule, given: ast.expr, target: ast.expr) -> str | None:
    """Return the model of which a target is made that it is compared with; None where that is not in sight."""
    if loses_graph(target):
        return None
    total = _sum_in_target(module, target)
    if total is None or not _OF_RETURNS.search(ast.unparse(total)):
        return None
    models = {ast.unparse(each.func) for each in _source_model_calls(module, given)}
    for share in (total.left, total.right):
        found = {ast.unparse(each.func) for each in _source_model_calls(module, share)} & models
        if found and _is_product(module, share):
            return min(found)
    return None


def _sum_in_target(module: SourceModule, target: ast.expr, depth: int = 0) -> ast.BinOp | None:
    """Return the sum that a target is, past names and changes of shape."""
    match target:
        case ast.BinOp(op=ast.Add()):
            return target
        case ast.Name() if depth < 4:
            values = module.definitions(target)
            only = values[0] if len(values) == 1 else None
            if only is None or is_without_grad(module, only):
                return None
            return _sum_in_target(module, only, depth + 1)
        case ast.Call(
            func=ast.Attribute(value=inner, attr="unsqueeze" | "squeeze" | "view" | "reshape" | "float")
        ):
            return _sum_in_target(module, inner, depth)
    return None


def _is_product(module: SourceModule, node: ast.expr) -> bool:
    """Tell a product, or the name of one."""
    values = module.definitions(node) if isinstance(node, ast.Name) else [node]
    return any(isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mult) for each in values)


def _source_model_calls(module: SourceModule, node: ast.expr) -> list[ast.Call]:
    """Return the models that a value comes from with its graph; what is unpacked from a result is that result's."""
    found = calls_with_graph(module, node)
    for name in [each for each in walk(node) if isinstance(each, ast.Name)]:
        for value, _ in module.resolver.unpacked(name) or []:
            if value is not None and not is_without_grad(module, value):
                found += calls_with_graph(module, value)
    return [each for each in found if is_model_call(module, each)]


def _model_of_both_sides(
    sides: tuple[Any, Any], answers: tuple[tuple[Any, nn.Module, str], ...]
) -> str | None:
    """Return the model whose answer to one input is a share of the target for its answer to another one."""
    if len({id(model) for _, model, _ in answers}) == len(answers):
        return None  # none was applied twice
    from truestep.doctor.runtime.bootstrap_targets import graph_nodes_behind, possible_answer_nodes

    known = {node: (model, name) for node, model, name in answers}
    for given, target in (sides, sides[::-1]):
        shares = [each for each in possible_answer_nodes(target) if each in known]
        behind = graph_nodes_behind(given) if shares else set()
        for share in shares:
            model, name = known[share]
            if share not in behind and any(node in behind and other is model for node, other, _ in answers):
                return name
    return None
