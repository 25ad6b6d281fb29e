# SPDX-License-Identifier: Apache-2.0
"""Which side of a comparison has the axis too many that made of n values a table of n by n, read off the graph behind it."""

from typing import Any

from torch import Tensor

from truestep.engine.broadcast_rows import shape_given

_MOST_NODES = 64


def each_with_each(values: Tensor) -> str:
    """Say how a table of all examples by all comes to be; nothing of another shape."""
    if values.ndim != 2 or len(values) != values.shape[1]:
        return ""
    count = len(values)
    met = _shapes_that_met(values.grad_fn, count)
    column, row = f"of shape ({count}, 1)", f"of shape ({count},)"
    if met == {(count, 1)}:
        sides, mended = f"outputs {column} and targets {row}", "outputs.squeeze(1)"
    elif met == {(count,)}:  # the graph ends in these, so what they met has no gradient
        sides, mended = f"outputs {row} and targets {column}", "targets.squeeze(1)"
    else:
        sides = f"one side {column} and one {row}"
        mended = "outputs.squeeze(1) or targets.squeeze(1), whichever has the axis too many"
    return (
        f"Each example was compared with each other one: {sides} were broadcast. "
        f"Give both one shape before they are compared: {mended}."
    )


def _shapes_that_met(node: Any, count: int) -> set[tuple[int, ...]]:
    """Return the shapes of what carries a gradient and became a table of `count` by `count`; nothing where there is no graph."""
    waiting, seen, met = [node], set[Any](), set[tuple[int, ...]]()
    while waiting and len(seen) < _MOST_NODES:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (shape := shape_given(node)) == (count, count):
            waiting += [each for each, _ in node.next_functions]
        elif shape:  # a number is broadcast by right
            met.add(shape)
    return met
