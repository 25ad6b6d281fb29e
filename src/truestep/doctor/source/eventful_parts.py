# SPDX-License-Identifier: Apache-2.0
"""The parts of a statement at which something may happen, in the order of evaluation: nine in ten hold none."""

import ast
from collections.abc import Iterator

from truestep.doctor.source.eventful_functions import EventfulFunctions
from truestep.doctor.source.names import Function
from truestep.doctor.source.protocol_calls import is_count

Around = tuple[tuple[str, ast.AST], ...]  # the comprehensions and choices around a part of an expression


class EventfulParts:
    """Finds the parts, once for each statement."""

    def __init__(self, matter: EventfulFunctions) -> None:
        self.protocol, self.resolver = matter.protocol, matter.resolver
        self._matter = matter
        index = matter.resolver.index
        self.kept = set(index.written).union(*index.attributes.values())  # attributes that hold something
        self._known: dict[ast.AST, list[tuple[ast.AST, Around]]] = {}

    def of(self, node: ast.AST) -> "list[tuple[ast.AST, Around]]":
        """Return the parts of an expression or statement at which something may happen."""
        if node not in self._known:
            self._known[node] = list(self.evaluations(node, ()))
        return self._known[node]

    def evaluations(self, node: ast.AST, around: Around) -> Iterator[tuple[ast.AST, Around]]:
        """Yield the parts of an expression at which something may happen, in their order, and what encloses each."""
        if isinstance(node, Function):
            return
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            around = (*around, ("loop", node))
        if isinstance(node, ast.IfExp):
            around = (*around, ("if", node))
        for child in node.beneath:  # type: ignore[attr-defined]
            if not isinstance(child, (ast.Name, ast.Constant)):
                yield from self.evaluations(child, around)
        if isinstance(node, ast.Call):
            happens = not self.is_quiet(node)
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            happens = is_count(node) or bool(self.protocol.assignment(node))
        else:
            happens = isinstance(node, ast.Yield)
        if happens:
            yield node, around

    def is_quiet(self, call: ast.Call) -> bool:
        """Tell a call that is no event, whatever it is called with: of a library, or of what has none inside."""
        if self.protocol.call(call) or self._matter.may_be_run_by(call):
            return False
        function, linker = call.func, self.resolver.names
        if isinstance(
            function, ast.Attribute
        ):  # what an attribute holds may be clear only in the call's context
            known = linker.qualify(function)
            return function.attr not in self.kept or (known is not None and "." in known)
        bound = linker.bindings(function) if isinstance(function, ast.Name) else [None]
        return all(each is not None and each.how in ("import", "def") for each in bound)
