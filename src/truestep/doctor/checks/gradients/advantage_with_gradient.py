# SPDX-License-Identifier: Apache-2.0
"""A policy's loss that trains the critic."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.finding import Place
from truestep.doctor.source.behind import calls_with_graph, is_model, is_without_grad
from truestep.doctor.source.flow import goes_backward, loses_graph
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.values import behind
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import WatchHistory

_LOG_PROBABILITIES = ("log_prob", "log_softmax", "logsigmoid")
MAX_DEPTH = 4  # assignments from a product back to the difference
_FEWEST = 2  # uses of the difference: in the policy's loss and in the critic's


class AdvantageWithGradient(SourceCheck, Watcher):
    """The advantage, a return minus the critic's value, multiplies the log-probabilities with its gradient.

    Why: the policy's loss then moves the critic, too, to values that make the loss small and not to the returns.

    Bad:
        policy, critic = nn.Linear(4, 2), nn.Linear(4, 1)
        returns = torch.ones(8)
        values = critic(x).squeeze(-1)
        advantage = returns - values
        chosen = policy(x).log_softmax(-1)[:, 0]
        actor_loss = -(chosen * advantage).mean()  # here
        loss = actor_loss + advantage.pow(2).mean()
        loss.backward()

    Good:
        policy, critic = nn.Linear(4, 2), nn.Linear(4, 1)
        returns = torch.ones(8)
        values = critic(x).squeeze(-1)
        advantage = returns - values
        chosen = policy(x).log_softmax(-1)[:, 0]
        actor_loss = -(chosen * advantage.detach()).mean()
        loss = actor_loss + advantage.pow(2).mean()
        loss.backward()

    Fix: advantage.detach() in the policy's loss.

    Evidence: seen only while a script runs.
    """

    code = "GRAD059"
    words = ("log_prob", "log_softmax")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a product whose difference comes from a model with its graph, and is used in another term, too."""
        for product in module.all(ast.BinOp):
            if not isinstance(product.op, ast.Mult) or is_without_grad(module, product):
                continue
            for chosen, advantage in ((product.left, product.right), (product.right, product.left)):
                if not isinstance(advantage, ast.Name) or not _is_log_probability(module, chosen):
                    continue
                if _is_of_a_critic(module, advantage) and goes_backward(module, product):
                    text = f"{ast.unparse(advantage)!r} carries the critic's gradient into the policy's loss."
                    yield At(product, text, RISK)

    def on_backward(self, history: WatchHistory, tensors: tuple[Tensor, ...], place: Place) -> Observations:
        """Report such a product among the terms of what goes backward."""
        if not history.in_window:
            return
        from truestep.doctor.runtime.products import advantage_with_graph

        for root in tensors:
            terms = [each for each in history.sums.terms_of(root) if each.node is not None]
            found = advantage_with_graph(terms) if len(terms) > 1 else None
            if found is not None:
                text = "What an error trains in another term multiplies log-probabilities here, with its gradient."
                yield Observation(found.added_at, text, RISK, {"terms": len(terms)})


def _is_log_probability(module: SourceModule, node: ast.expr) -> bool:
    names = [each.func.attr for each in behind(module, node) if isinstance(each.func, ast.Attribute)]
    return any(each in _LOG_PROBABILITIES for each in names) or {"gather", "log"} <= set(names)


def _is_of_a_critic(module: SourceModule, advantage: ast.Name) -> bool:
    """Tell a difference with what a model gives, undetached, which another term of this function uses as well."""
    difference = _difference(module, advantage)
    if difference is None:
        return False
    sides = [each for each in (difference.left, difference.right) if not loses_graph(each)]
    if any(_is_detached_elsewhere(module, each) for each in sides):
        return True
    critics = [each for each in sides if any(is_model(module, call) for call in _own_calls(module, each))]
    return bool(critics) and any(_is_used_twice(module, each) for each in [advantage, *critics])


def _difference(module: SourceModule, node: ast.expr, depth: int = 0) -> ast.BinOp | None:
    """Return the difference that a value is, before it was centred or divided by its spread."""
    match node:
        case ast.Name():
            values = module.definitions(node)
            only = values[0] if len(values) == 1 else None
            return _difference(module, only, depth + 1) if only is not None and depth < MAX_DEPTH else None
        case ast.BinOp(op=ast.Div() | ast.Mult()):
            return _difference(module, node.left, depth)
        case ast.BinOp(op=ast.Sub(), right=ast.Call(func=ast.Attribute(attr="mean"))):
            return _difference(module, node.left, depth)
        case ast.BinOp(op=ast.Sub()):
            return node
    return None


def _is_used_twice(module: SourceModule, value: ast.expr) -> bool:
    """Tell a name whose value goes with its gradient into another term of the function, too."""
    reads = module.reads(value.id) if isinstance(value, ast.Name) else []
    here = [each for each in reads if module.scope(each) is module.scope(value)]
    return len([each for each in here if not _is_detached(module, each)]) >= _FEWEST


def _is_detached_elsewhere(module: SourceModule, value: ast.expr) -> bool:
    """Tell what the function detaches in another place: `values[i].detach()` says that values[i] has a graph."""
    text = ast.dump(value) if isinstance(value, ast.Name | ast.Attribute | ast.Subscript) else None
    detached = [
        each.func.value for each in module.method_calls("detach") if isinstance(each.func, ast.Attribute)
    ]
    scope = module.scope(value)
    return any(module.scope(each) is scope and ast.dump(each) == text for each in detached)


def _own_calls(module: SourceModule, node: ast.expr) -> list[ast.Call]:
    """Return the calls behind a value; what is unpacked from a model's result is that model's."""
    found = calls_with_graph(module, node)
    for name in walk(node):
        for value, _ in (module.resolver.unpacked(name) or []) if isinstance(name, ast.Name) else []:
            if isinstance(value, ast.Call) and not is_without_grad(module, value):
                found.append(value)
    return found


def _is_detached(module: SourceModule, read: ast.expr) -> bool:
    parent = module.parents[read]
    return isinstance(parent, ast.Attribute) and parent.attr in (
        "detach",
        "item",
        "data",
        "mean",
        "std",
        "shape",
    )
