# SPDX-License-Identifier: Apache-2.0
"""Finds what a run keeps from step to step: sums of losses with their graphs, lists of outputs."""

from typing import Any

from truestep.explainer.crash import Crash
from truestep.explainer.explainer import Cause
from truestep.explainer.values import is_tensor, torch_if_imported

_MANY = 3
_LONGEST_WALK = 64


def kept_graphs(crash: Crash) -> Cause | None:
    """Return what keeps the graphs of earlier steps alive, by name and place; None where nothing does."""
    for frame, name, value in crash.users_locals():
        if is_tensor(value) and value.dim() == 0 and _added(value) >= _MANY:
            return Cause(
                f"`{name}` in {frame.function} ({frame.place}) is a sum of at least {_added(value)} losses with all "
                f"of their graphs.",
                f"add numbers, not tensors: {name} += loss.item() (or loss.detach()).",
            )
        items = list(value.values()) if type(value) is dict else value if type(value) is list else []
        graphs = _with_graphs(items)
        if len(graphs) >= _MANY:
            return Cause(
                f"`{name}` in {frame.function} ({frame.place}) holds {len(graphs)} tensors with their graphs.",
                f"keep {name} without graphs: append(x.detach().cpu()), or x.item() for numbers.",
            )
    return None


def _with_graphs(items: list[Any]) -> list[Any]:
    """Return the tensors with a graph; each type is judged once, as lists may be of any length."""
    torch = torch_if_imported()
    kinds = {kind for kind in set(map(type, items)) if torch is not None and issubclass(kind, torch.Tensor)}
    if not kinds:
        return []
    with torch._C.DisableTorchFunctionSubclass():
        return [item for item in items if type(item) in kinds and item.grad_fn is not None]


def _added(tensor: Any) -> int:
    """Return how many tensors a scalar is the sum of, as `total = total + loss` makes one after the other."""
    node, num = tensor.grad_fn, 1
    while node is not None and node.name() == "AddBackward0" and num < _LONGEST_WALK:
        inputs = [each for each, _ in node.next_functions if each is not None]
        following = [each for each in inputs if each.name() == "AddBackward0"]
        num += len(inputs) - 1 if len(inputs) > 1 else 0
        node = following[0] if following else None
    return num
