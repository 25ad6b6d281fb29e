# SPDX-License-Identifier: Apache-2.0
"""Code that means to fail, and code for other versions of a library."""

import ast
import re

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk

_EXPECTS = re.compile(r"^(assertRaises|assertWarns|raises$|warns$|deprecated_call$)")
_ASKS_VERSION = re.compile(
    r"version|greater|_gt_|_ge_|_lt_|_le_|hasattr\(torch|getattr\(torch", re.IGNORECASE
)
_MISSING = ("ImportError", "ModuleNotFoundError", "AttributeError")


def is_meant_to_fail(module: SourceModule, node: ast.AST) -> bool:
    """Tell whether a test expects this to raise or warn: `with pytest.raises(...)`."""
    blocks = [each for each in module.ancestors(node) if isinstance(each, ast.With | ast.AsyncWith)]
    calls = [item.context_expr for block in blocks for item in block.items]
    names = [ast.unparse(each.func).rsplit(".", 1)[-1] for each in calls if isinstance(each, ast.Call)]
    return any(_EXPECTS.search(name) for name in names)


def is_for_other_versions(module: SourceModule, node: ast.AST) -> bool:
    """Tell whether a test of the version stands around, or a handler for what is not there."""
    for each in module.ancestors(node):
        if isinstance(each, ast.If | ast.IfExp) and _asks_version(module, each.test):
            return True
        caught = ast.unparse(each.type) if isinstance(each, ast.ExceptHandler) and each.type else ""
        if any(name in caught for name in _MISSING):
            return True
    return False


def _asks_version(module: SourceModule, test: ast.expr) -> bool:
    """Tell whether a test asks for a version, be it under a name: `if is_new:`."""
    names = [node for node in walk(test) if isinstance(node, ast.Name | ast.Attribute)]
    behind = [value for node in names for value in module.definitions(node) if value is not None]
    return any(_ASKS_VERSION.search(ast.unparse(each)) for each in [test, *behind])
