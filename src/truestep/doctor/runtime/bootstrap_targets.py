# SPDX-License-Identifier: Apache-2.0
"""Finds in the graph of an error a side that is made of the other side's model: what is known, plus a share of its answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from truestep.doctor.runtime.loss_term_signs import operation_of_node, shape_of_node

_DEPTH = 12  # operations behind a side
# what picks one of a model's answers, or changes its shape; a model's own layers are none of these
_PICKING = frozenset(
    {"Max", "Min", "Amax", "Amin", "Maximum", "Minimum", "Gather", "Index", "Select", "Slice", "TakeAlongDim"}
    | {
        "View",
        "UnsafeView",
        "ReshapeAlias",
        "Squeeze",
        "Unsqueeze",
        "Permute",
        "Transpose",
        "T",
        "Clone",
        "Expand",
    }
    | {"Where", "MaskedFill", "IndexPut", "CopySlices", "Stack", "Cat", "Unbind", "Mean"}
)
_SUMS = frozenset({"Add", "Sub"})
_OF_ERRORS = frozenset(  # how errors become one loss, and losses one
    {"Mean", "Sum", "Mul", "Div", "Add", "Pow", "Neg", "View", "Abs", "Sqrt", "Log", "Cosh", "Softplus"}
    | {"Where", "Clamp", "ClampMin", "ClampMax", "Maximum", "Minimum", "Stack", "Cat", "Unsqueeze", "Squeeze"}
)
_LOSS_DEPTH = 24  # operations between a loss of several terms and a difference


def possible_answer_nodes(node: Any) -> Iterator[Any]:
    """Yield the nodes behind a side that may be a model's answer: it was scaled by a known number, and a known one added."""
    yield from _answer_nodes(node, frozenset({"Add", "Mul"}), _DEPTH)


def _answer_nodes(node: Any, wanted: frozenset[str], depth: int) -> Iterator[Any]:
    if not wanted:
        yield node
    name = operation_of_node(node)
    kind = "Add" if name in _SUMS else "Mul" if name in ("Mul", "Div") else ""
    if not depth or not (kind or name in _PICKING):
        return
    edges = [each for each, _ in node.next_functions]
    behind = [each for each in edges if each is not None]
    left = wanted - {kind} if len(behind) == 1 and len(edges) == 2 else wanted  # the other side is known
    for each in behind:
        yield from _answer_nodes(each, left, depth - 1)


def graph_nodes_behind(node: Any, stop: int = 200) -> set[Any]:
    """Return nodes of the graph behind a side, with itself."""
    found, waiting = {node}, [node]
    while waiting and len(found) < stop:
        for each, _ in waiting.pop().next_functions:
            if each is not None and each not in found:
                found.add(each)
                waiting.append(each)
    return found


def squared_difference_sides(root: Any) -> Iterator[tuple[Any, Any]]:
    """Yield both sides of the differences near behind what goes backward."""
    for node in difference_nodes(root):
        behind = [each for each, _ in node.next_functions if each is not None]
        if len(behind) == 2:
            yield behind[0], behind[1]


def difference_nodes(root: Any) -> Iterator[Any]:
    """Yield the differences of several numbers that are near behind what goes backward, in any of its terms."""
    waiting = [(root, _LOSS_DEPTH)] if root is not None else []
    seen = {root}
    while waiting:
        node, left = waiting.pop()
        name = operation_of_node(node)
        is_of_terms = name == "Sub" and shape_of_node(node) == ()
        if name == "Sub" and not is_of_terms:
            yield node
        elif left and (is_of_terms or name in _OF_ERRORS):
            fresh = [each for each, _ in node.next_functions if each is not None and each not in seen]
            seen.update(fresh)
            waiting += [(each, left - 1) for each in fresh]
