# SPDX-License-Identifier: Apache-2.0
"""`___init___`, which nobody calls."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.replacement import SourceEdit
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits

MISSPELT = re.compile(r"^_*(init|inti|int|forwad|foward|froward|forwards)_*$")
RIGHT = {"__init__", "forward", "init", "forwards", "int", "__int__", "_init"}


class ConstructorMisspelt(SourceCheck):
    """A module's __init__ or forward is misspelt.

    Why: Python calls the inherited one: the layers are never made, and an optimizer finds no parameters.

    Bad:
        class Net(nn.Module):
            def ___init___(self):  # here
                super().__init__()
                self.layer = nn.Linear(4, 3)

    Good:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 3)

    Fix: two underscores on each side; `forward` in full.

    Evidence: mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/080/main.py:9;
    mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/080/original_code_snippet.py:2; beds P, Q, R, S, U, X: 5
    true, 2 false.
    """

    code = "PARAM019"
    words = ("Module",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a method whose name is nearly one of the two, in a module class that lacks the right one."""
        for owner in module.kinds.classes_of("module"):
            methods = {node.name: node for node in owner.body if isinstance(node, ast.FunctionDef)}
            for name, node in methods.items():
                wanted = "__init__" if "in" in name else "forward"
                is_near = bool(MISSPELT.match(name)) and name not in RIGHT and wanted not in methods
                if is_near and _has_body_beyond_super_init(node) and not _is_called_in_program(module, name):
                    yield At(node, f"{owner.name}.{name} is never called: {wanted} is meant.")

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Write the name as Python and torch look for it."""
        wanted = "__init__" if "in" in node.name else "forward"
        column = module.lines[node.lineno - 1].find(node.name) + 1
        return [SourceEdit(node.lineno, column, node.lineno, column + len(node.name), wanted)]


def _is_called_in_program(module: SourceModule, name: str) -> bool:
    """Tell a name by which the program calls something itself; `super()._init_()` in a method of that name calls a base."""
    for read in module.program.attributes_read.get(name, ()):
        home = module.home(read)
        call, scope = home.parents[read], home.scope(read)
        is_base = isinstance(read.value, ast.Call) or getattr(scope, "name", "") == name
        if isinstance(call, ast.Call) and call.func is read and not is_base:
            return True
    return False


def _has_body_beyond_super_init(method: ast.FunctionDef) -> bool:
    """Tell a method from one that only calls `super().__init__()`: without it, Python does the same."""

    def is_idle_statement(each: ast.stmt) -> bool:
        value = each.value if isinstance(each, ast.Expr) else None
        made = value.func if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else None
        is_base = made is not None and made.attr == "__init__"
        return isinstance(each, ast.Pass) or isinstance(value, ast.Constant) or is_base

    return not all(map(is_idle_statement, method.body))
