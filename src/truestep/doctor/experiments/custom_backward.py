# SPDX-License-Identifier: Apache-2.0
"""What a gradient goes through that need be no slope: a backward written by hand, or the gradient of a function with a kink."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from torch.autograd.function import BackwardCFunction

from truestep.doctor.relations.graph import walk_graph_nodes

_MOST_NODES = 100_000
# of which a gradient has no slope where it jumps, as in a gradient penalty of such a critic
_BENT = (
    "Threshold",
    "LeakyRelu",
    "PreluKernel",
    "RreluWithNoise",
    "Hardtanh",
    "Hardswish",
    "Softshrink",
    "Hardshrink",
)
_OF_A_GRADIENT = "BackwardBackward"


def custom_backward_note(roots: Sequence[Any]) -> str | None:
    """Return what is said of such a function that these tensors are computed with, None where there is none."""
    for node in islice(walk_graph_nodes(roots), _MOST_NODES):
        name: str = node.name()
        if isinstance(node, BackwardCFunction):
            return f"{name.removesuffix('Backward')}, whose backward is written by hand"
        if name.startswith(_BENT) and _OF_A_GRADIENT in name:
            return f"a gradient of {name.partition('Backward')[0]}, which jumps where that bends"
    return None
