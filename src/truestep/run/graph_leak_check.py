# SPDX-License-Identifier: Apache-2.0
"""Lists that a loop only adds tensors to that have their graph: what the graph holds is never given back."""

import ast
import sys
from collections.abc import Iterator
from typing import Any

import torch

from truestep.core.source_lookup import source_tree
from truestep.core.user_frames import running_user_lines
from truestep.run.name_resolution import LoopPiece, last_name
from truestep.run.state import RunState
from truestep.run.unsaved_loop_objects import name_assigned_or_deleted, pieces_of_running_loops

_LOOKS = (8, 64, 512)  # the bodies before which it is looked
_ADDS = ("append", "extend", "insert")


class RetainedGraphWatcher:
    """Looks now and then at the lists that the bodies of a run add to and do nothing else with."""

    def __init__(self, run: RunState) -> None:
        self._run, self._bodies = run, 0

    def body_begins(self) -> None:
        """A body of the leader's is about to begin, called for by the user's own loop."""
        self._bodies += 1
        if self._bodies in _LOOKS:
            for name, items in _lists_only_appended_to():
                kept = [each for each in items if isinstance(each, torch.Tensor) and each.grad_fn is not None]
                if len(kept) > 1 and len(kept) == len(items):
                    self._run.screen.say_once(_SAID.format(name=name, num=len(kept)), key=f"graphs {name}")


def _lists_only_appended_to() -> Iterator[tuple[str, list[Any]]]:
    """Yield the lists that the running loops name for nothing but to add to them, by what is written."""
    pieces = [*pieces_of_running_loops()]
    written = {name for piece in pieces for each in piece.nodes if (name := name_assigned_or_deleted(each))}
    found: dict[str, list[Any]] = {}
    others: set[str] = set()
    for piece in pieces:
        added = {
            id(each.value) for each in piece.nodes if isinstance(each, ast.Attribute) and each.attr in _ADDS
        }
        for node, value in _lists_named_in_piece(piece):
            is_own = isinstance(node, ast.Name) or not _is_attribute_read_anywhere(node, piece)
            if id(node) in added and last_name(node) not in written and is_own:
                found[piece.names.text(node)] = value
            elif id(node) not in added:
                others.add(piece.names.text(node))
    return ((name, items) for name, items in found.items() if name not in others)


def _is_attribute_read_anywhere(node: ast.expr, piece: LoopPiece) -> bool:
    """Whether an attribute is read for more than to add to it, where its loop or its class is written: few methods are followed."""
    owner = piece.names.value(node.value) if isinstance(node, ast.Attribute) else None
    home = getattr(sys.modules.get(type(owner).__module__), "__file__", None)
    files = {code.co_filename for code, _ in running_user_lines()} | ({home} if home else set())
    name, used = last_name(node), 0
    for tree in filter(None, map(source_tree, files)):
        parents = {inner: each for each in ast.walk(tree) for inner in ast.iter_child_nodes(each)}
        reads = [
            each
            for each in ast.walk(tree)
            if isinstance(each, ast.Attribute) and each.attr == name and isinstance(each.ctx, ast.Load)
        ]
        added = [each for each in reads if getattr(parents[each], "attr", None) in _ADDS]
        used += len(reads) - len(added)
    return used > 0


def _lists_named_in_piece(piece: LoopPiece) -> Iterator[tuple[ast.expr, list[Any]]]:
    counted = {
        id(each.args[0])
        for each in piece.nodes
        if isinstance(each, ast.Call)
        and isinstance(each.func, ast.Name)
        and each.func.id == "len"
        and each.args
    }
    for node in piece.nodes:
        if isinstance(node, ast.Name | ast.Attribute) and id(node) not in counted:
            value = piece.names.value(node)
            if type(value) is list:
                yield node, value


_SAID = (
    "{name} holds {num} tensors with the graphs that they were computed by, and the loop does nothing with it but add to it: the "
    "memory of those graphs is given back when the list is. Write {name}.append(value.detach()), or compute the value within with "
    "torch.no_grad():"
)
