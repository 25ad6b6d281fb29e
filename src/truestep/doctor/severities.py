# SPDX-License-Identifier: Apache-2.0
"""Which severities a check gives: told from its own file, where each finding names its own."""

import ast
import inspect
import sys
from functools import cache

from truestep.doctor.finding import Severity

# what makes a finding, with the number of arguments before the severity; without one it is a bug
_MAKERS = {"At": 2, "Observation": 2}


@cache
def check_severities(module_name: str) -> tuple[Severity, ...]:
    """Return what the check of a file may say, gravest first."""
    tree = ast.parse(inspect.getsource(sys.modules[module_name]))
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    found = {each for each in Severity if each.name in named}
    if not found or any(_is_of_default(node) for node in ast.walk(tree)):
        found.add(Severity.BUG)
    return tuple(sorted(found, key=lambda each: each.rank))


def _is_of_default(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _MAKERS):
        return False
    given = len(node.args) > _MAKERS[node.func.id] or any(isinstance(each, ast.Starred) for each in node.args)
    return not given and "severity" not in {each.arg for each in node.keywords}
