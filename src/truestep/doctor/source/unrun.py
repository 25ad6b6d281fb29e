# SPDX-License-Identifier: Apache-2.0
"""What no run in sight comes to: a file that stops at an import, and a function that a file's users leave alone."""

import ast
import re

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.once import asked_once
from truestep.doctor.source.uses import is_behind_exit

_MADE_LATER = re.compile(r"version|_pb2|^_|_(ext|cuda|cpp|c)$", re.IGNORECASE)  # by a build
_CALLED_BY_OTHERS = re.compile(r"^(test|main$|_?pytest|setup|__|on_)|_main$", re.IGNORECASE)


def is_never_run(module: SourceModule, node: ast.AST) -> bool:
    """Tell whether a file ends before a node, by `exit()` or an ImportError, or nobody in sight says its function's name."""
    if is_behind_exit(module, node):
        return True
    missing = _missing_import(module, module.tree)
    if missing is not None and getattr(node, "lineno", 0) > missing.lineno:
        return True
    outermost = next(
        (each for each in module.ancestors(node) if module.parents.get(each) is module.tree), None
    )
    return isinstance(outermost, ast.FunctionDef) and _is_left_alone(module, outermost)


@asked_once(None)
def _missing_import(module: SourceModule, tree: ast.Module, depth: int = 0) -> ast.stmt | None:  # noqa: ARG001 - asked so
    """Return the first import of a file, outside of all tests and tries, of a module of this project that is not there."""
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            named = [each.name for each in node.names]
            is_made = any(
                _MADE_LATER.search(each) for each in [*named, *(getattr(node, "module", "") or "").split(".")]
            )
            if not is_made and module.program.lacks(node):
                return node
    return None


@asked_once(False)
def _is_left_alone(module: SourceModule, function: ast.FunctionDef, depth: int = 0) -> bool:  # noqa: ARG001 - asked so
    """Tell a plain function whose file is imported by another, while no file names it: what is read alone has users."""
    name, program = function.name, module.program
    if function.decorator_list or _CALLED_BY_OTHERS.search(name) or name in program.imported_names:
        return False
    if any(name in each for each in program.texts if len(each) < 200 and each.isprintable()):
        return False
    is_named = any(
        function not in [read, *module.ancestors(read)]
        for file in program.linked
        for read in file.read_under(name)
    )
    return not is_named and program.is_imported()
