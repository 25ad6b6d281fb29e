# SPDX-License-Identifier: Apache-2.0
"""Code of which a page shows a part: what stands for the lines, and the arguments, that are left out."""

import ast
import re

from truestep.doctor.source.module import SourceModule

STANDS_FOR_OTHERS = re.compile(
    r"#\s*(\.\.\.|…|etc\b|and so on|same\b|(the )?other\b|as (above|before))", re.IGNORECASE
)


def is_shortened(module: SourceModule, block: ast.stmt) -> bool:
    """Tell whether lines of a block are left out: a comment says so, or `...` stands beside other statements."""
    lines = module.text.splitlines()[block.lineno - 1 : block.end_lineno]
    return any(map(STANDS_FOR_OTHERS.search, lines)) or bool(elisions_in(module, block))


def elisions_in(module: SourceModule, block: ast.AST) -> list[ast.Expr]:
    """Return each `...` in a block that is a statement among others; one alone is an empty body."""
    found = [each for each in module.inside(block, ast.Expr) if isinstance(each.value, ast.Constant)]
    return [each for each in found if _value_of(each) is Ellipsis and not _is_alone(module, each)]


def _value_of(node: ast.Expr) -> object:
    return node.value.value if isinstance(node.value, ast.Constant) else None


def _is_alone(module: SourceModule, node: ast.Expr) -> bool:
    body: list[ast.stmt] = getattr(module.parents[node], "body", [])
    return all(
        each is node or (isinstance(each, ast.Expr) and isinstance(_value_of(each), str)) for each in body
    )
