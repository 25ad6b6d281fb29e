# SPDX-License-Identifier: Apache-2.0
"""Code of which a page shows a part: what stands for the lines, and the arguments, that are left out."""

import ast
import re

from truestep.doctor.source.module import SourceModule

STANDS_FOR_OTHERS = re.compile(
    r"#\s*(\.\.\.|…|etc\b|and so on|same\b|(the )?other\b|as (above|before))", re.IGNORECASE
)


def has_left_out_lines(module: SourceModule, block: ast.stmt) -> bool:
    """Tell whether lines of a block are left out: a comment says so, or `...` stands beside other statements."""
    lines = module.text.splitlines()[block.lineno - 1 : block.end_lineno]
    shortened = any(is_elision(module, each) for each in module.inside(block, ast.Expr))
    return shortened or any(map(STANDS_FOR_OTHERS.search, lines))


def is_elision(module: SourceModule, statement: ast.Expr) -> bool:
    """Tell a `...` that is a statement among others: it stands for lines that are left out; one alone is an empty body."""
    return _constant_value(statement) is Ellipsis and not _is_only_statement(module, statement)


def _constant_value(node: ast.Expr) -> object:
    return node.value.value if isinstance(node.value, ast.Constant) else None


def _is_only_statement(module: SourceModule, node: ast.Expr) -> bool:
    body: list[ast.stmt] = getattr(module.parents[node], "body", [])
    return all(
        each is node or (isinstance(each, ast.Expr) and isinstance(_constant_value(each), str))
        for each in body
    )
