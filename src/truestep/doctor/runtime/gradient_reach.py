# SPDX-License-Identifier: Apache-2.0
"""Which weights a gradient will reach: walks through the graph behind a value, before anything goes backward."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

MAX_NODES = 20_000  # of a graph; a larger one is not gone through


def leaves_behind_node(node: Any) -> set[int] | None:
    """Return the identities of the leaves behind a node of a graph.

    None where a function of the user's own stands between, a recomputed block's among them, and may reach others.
    """
    if isinstance(node, Tensor):
        return {id(node)}
    graph = graph_nodes_between([node], keeps_leaves=True)
    if graph is None or any(isinstance(each, torch.autograd.function.BackwardCFunction) for each in graph):
        return None
    return {id(each.variable) for each in graph if hasattr(each, "variable")}


def graph_nodes_between(
    nodes: Iterable[Any], ends: Iterable[Any] = (), *, keeps_leaves: bool = False
) -> set[Any] | None:
    """Return all nodes from some on, up to others and without them; None where there are too many."""
    seen = {each for each in nodes if each is not None}
    waiting, found, stops = list(seen), set(seen), set(ends)
    while waiting and len(found) <= MAX_NODES:
        for each, _ in waiting.pop().next_functions:
            if each is not None and each not in found and each not in stops:
                found.add(each)
                waiting.append(each)
    if waiting:
        return None
    return found if keeps_leaves else {each for each in found if not hasattr(each, "variable")}
