# SPDX-License-Identifier: Apache-2.0
"""A walk through what tensors are computed with."""

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor


def walk_graph_nodes(values: Iterable[Any], stop: Iterable[Any] = ()) -> Iterator[Any]:
    """Yield each node of the graphs of tensors once, and none behind those at which the walk stops."""
    seen = {None, *stop}
    waiting: list[Any] = [each.grad_fn for each in values if isinstance(each, Tensor)]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            yield node
            waiting += [each for each, _ in node.next_functions]
