# SPDX-License-Identifier: Apache-2.0
"""Which weights a gradient will reach: a walk through the graph behind a value, before anything goes backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MAX_NODES = 20_000  # of a graph; a larger one is not gone through


def watched_reach(node: Any) -> set[int] | None:
    """Return the identities of the leaves behind a node of a graph.

    None where a function of the user's own stands between, a recomputed block's among them, and may reach others.
    """
    if isinstance(node, Tensor):
        return {id(node)}
    found: set[int] = set()
    seen, waiting = {node}, [node]
    while waiting:
        current = waiting.pop()
        if isinstance(current, torch.autograd.function.BackwardCFunction) or len(seen) > MAX_NODES:
            return None
        leaf = getattr(current, "variable", None)
        if leaf is not None:
            found.add(id(leaf))
        for each, _ in current.next_functions:
            if each is not None and each not in seen:
                seen.add(each)
                waiting.append(each)
    return found
