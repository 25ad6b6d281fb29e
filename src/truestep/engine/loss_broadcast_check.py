# SPDX-License-Identifier: Apache-2.0
"""A loss whose outputs and targets were broadcast: told once, when a loss function is first used.

Outputs of shape (n, 1) and targets of shape (n,) make (n, n): each output is compared with the targets of all examples. Losses of
that shape are refused; a mean of all, or of each row, has another one, and is read off the operations that it ends in.
"""

from typing import Any

from truestep.core.user_frames import warn_user
from truestep.engine.loss_results import MOST_NODES, LossOutput, node_output_shape

_MEETING = ("Sub", "Rsub", "Expand")  # a difference by hand, and what torch's own losses do to their inputs
_ON_PURPOSE = (
    *("Unsqueeze", "View", "Reshape", "Expand", "Transpose", "Permute", "T", "UnsafeView"),
    *("Alias", "Index", "Slice"),
)


def warn_of_broadcast_rows(names: str, part: LossOutput) -> None:
    """Warn of a loss, a scalar or a mean for each example, in which each output met the target of each example."""
    count = part.num_examples or 0
    is_mean = part.is_scalar or tuple(part.values.shape) == (count,)
    if is_mean and count > 1 and _is_broadcast_to_square(part.values.grad_fn, count):
        warn_user(_BROADCAST.format(names=names, count=count))


def _is_broadcast_to_square(node: Any, count: int) -> bool:
    """Whether a column of outputs becomes a square on the way to a loss, and no line of the user's says so.

    What is beside it needs no gradient: pairs of outputs are compared on purpose.
    """
    waiting: list[Any] = [node]
    seen: set[Any] = set()
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop()
        if node is None or node in seen or node_output_shape(node) not in ((), (count,), (count, count)):
            continue
        seen.add(node)
        below = [each for each, _ in node.next_functions if each is not None]
        if node_output_shape(node) and node.name().startswith(_MEETING) and len(below) == 1:
            is_column = node_output_shape(below[0]) == (count, 1) and not below[0].name().startswith(
                _ON_PURPOSE
            )
            if is_column and "AccumulateGrad" not in below[0].name():
                return True
        waiting += below
    return False


_BROADCAST = (
    "The loss of {names} compares each of the {count} outputs with the targets of all {count} examples: outputs of shape "
    "({count}, 1) and targets of shape ({count},) are broadcast to ({count}, {count}) before the mean, and the model learns the "
    "mean of all targets. Give both one shape: outputs.squeeze(1)."
)
