# SPDX-License-Identifier: Apache-2.0
"""Functions in a graph whose backward is written by hand: their gradient need be no slope, and may not mean to be."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.autograd.function import BackwardCFunction

_MOST_NODES = 100_000


def own_backward_of(roots: Sequence[Any]) -> str | None:
    """Return the name of such a function that these tensors are computed with, None where there is none."""
    waiting = [each.grad_fn for each in roots if isinstance(each, Tensor)]
    seen: set[Any] = set()
    while waiting and len(seen) < _MOST_NODES:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        if isinstance(node, BackwardCFunction):
            return f"{node.name().removesuffix('Backward')}, whose backward is written by hand"
        seen.add(node)
        waiting += [following for following, _ in node.next_functions]
    return None
