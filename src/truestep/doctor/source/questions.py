# SPDX-License-Identifier: Apache-2.0
"""Questions about all files of a program, each answered once (`SourceModule.of_program`)."""

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from truestep.doctor.source.module import SourceModule


def identifiers_of(files: "list[SourceModule]") -> set[str]:
    """Return every name, attribute and keyword."""
    return set().union(*(each.own_identifiers for each in files))


def texts_of(files: "list[SourceModule]") -> set[str]:
    """Return every text that stands written."""
    constants = (node.value for each in files for node in each.all(ast.Constant))
    return {value for value in constants if isinstance(value, str)}


def attributes_read_of(files: "list[SourceModule]") -> dict[str, list[ast.Attribute]]:
    """Return where attributes are read, by their names."""
    found: dict[str, list[ast.Attribute]] = {}
    for file in files:
        for node in file.all(ast.Attribute):
            if isinstance(node.ctx, ast.Load):
                found.setdefault(node.attr, []).append(node)
    return found
