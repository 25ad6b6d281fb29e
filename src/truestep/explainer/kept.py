# SPDX-License-Identifier: Apache-2.0
"""Finds what a run keeps from step to step: sums of losses with their graphs, lists of outputs."""

from typing import Any

from truestep.core.wording import counted
from truestep.explainer.crash import Crash
from truestep.explainer.source import crash_name_grows_in_loop
from truestep.explainer.values import is_tensor_at_crash, torch_at_crash

_MANY = 3  # two may be the last step's and this one's
_LONGEST_WALK = 64  # a sum over an epoch has thousands of nodes, and "at least 64" says as much


def kept_graphs(crash: Crash) -> dict[str, str]:
    """Return what keeps the graphs of earlier steps alive, by name and place, and what to do: facts of a case."""
    for frame, name, value in crash.users_locals():
        # A loss of several terms is such a sum too: only what a loop adds to, and does not set anew, is kept from step to step.
        is_sum = is_tensor_at_crash(value) and value.dim() == 0 and _added(value) >= _MANY
        if is_sum and crash_name_grows_in_loop(frame.path, name, frame.line):
            what = f"is a sum of at least {_added(value)} losses with all of their graphs."
            fix = f"add numbers, not tensors: {name} += loss.item() (or loss.detach())."
            return {"kept": f"`{name}` in {frame.function} ({frame.place}) {what}", "kept_fix": fix}
        items = list(value.values()) if type(value) is dict else value if type(value) is list else []
        graphs = _with_graphs(items)
        if len(graphs) >= _MANY:
            what = f"holds {counted(len(graphs), 'tensor with its graph', 'tensors with their graphs')}."
            fix = f"keep {name} without graphs: append(x.detach().cpu()), or x.item() for numbers."
            return {"kept": f"`{name}` in {frame.function} ({frame.place}) {what}", "kept_fix": fix}
    return {}


def _with_graphs(items: list[Any]) -> list[Any]:
    """Return the tensors with a graph; each type is judged once, as lists may be of any length."""
    torch = torch_at_crash()
    kinds = {kind for kind in set(map(type, items)) if torch is not None and issubclass(kind, torch.Tensor)}
    if not kinds:
        return []
    with torch._C.DisableTorchFunctionSubclass():
        return [item for item in items if type(item) in kinds and item.grad_fn is not None]


def _added(tensor: Any) -> int:
    """Return how many tensors a scalar is the sum of, as `total = total + loss` makes one after the other."""
    node, num = tensor.grad_fn, 1
    while node is not None and node.name() == "AddBackward0" and num < _LONGEST_WALK:
        # A number that is added has no node.
        inputs = [each for each, _ in node.next_functions if each is not None]
        following = [each for each in inputs if each.name() == "AddBackward0"]
        num += len(inputs) - 1 if len(inputs) > 1 else 0
        node = following[0] if following else None
    return num
