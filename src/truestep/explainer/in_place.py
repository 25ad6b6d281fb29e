# SPDX-License-Identifier: Apache-2.0
"""Finds what changes tensors in place: lines of the user's, and layers with inplace=True."""

import ast
from typing import Any

from truestep.explainer.crash import Crash
from truestep.explainer.evidence import running_models
from truestep.explainer.source import crashed_file_nodes
from truestep.explainer.values import evidence_of_layer

# these keep what they were given and not what they gave, so that a change of it does no harm
_KEEP_INPUT = ("Linear", "Conv", "BatchNorm", "GroupNorm", "LayerNorm", "InstanceNorm")


def in_place_layers(crash: Crash, operation: str) -> tuple[list[str], list[str]]:
    """Return the layers with inplace=True by their paths: those behind a layer of an operation, and the others.

    Those behind a layer that needs its own output no more, as a linear one, are left out.
    """
    maker = _plain(operation.partition("Backward")[0])
    behind, others = list[str](), list[str]()
    for owner, model in running_models(crash):
        for path, module in model.named_modules():
            before: Any = None
            for name, child in module.named_children():
                if getattr(child, "inplace", False) is True:
                    where = ".".join(part for part in (owner, path, name) if part)
                    shown = f"`{where}` = {evidence_of_layer(child)}"
                    if before is not None and _plain(type(before).__name__) == maker:
                        behind.append(shown)
                    elif before is None or not type(before).__name__.startswith(_KEEP_INPUT):
                        others.append(shown)
                before = child
    return list(dict.fromkeys(behind)), list(dict.fromkeys(others))


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def crash_lines_in_place(path: str, first: int, last: int) -> list[tuple[int, str]]:
    """Return the lines that change a tensor in place, with its name: x += y, x[i] = y, x.add_(y)."""
    found = []
    for node in crashed_file_nodes(path, ast.AST):
        line = getattr(node, "lineno", 0)
        if not first <= line <= last:
            continue
        if isinstance(node, ast.AugAssign):
            found.append((line, ast.unparse(node.target).partition("[")[0]))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            found.append((line, ast.unparse(node.targets[0].value)))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            method = node.func.attr
            if (
                any(each.arg == "inplace" and ast.unparse(each.value) == "True" for each in node.keywords)
                and node.args
            ):
                found.append((line, ast.unparse(node.args[0])))
            elif (
                method.endswith("_")
                and not method.endswith("__")
                and method not in ("requires_grad_", "retain_grad_")
            ):
                found.append((line, ast.unparse(node.func.value)))
    return sorted(found)
