# SPDX-License-Identifier: Apache-2.0
"""Which bindings of a name can be in force where it is read."""

import ast

from truestep.doctor.source.linking import SourceLinker
from truestep.doctor.source.names import Binding, Index


class ReachingBindings:
    """Goes back from a reader to what gave a name its value, as far as that is certain."""

    def __init__(self, index: Index, linker: SourceLinker) -> None:
        self.index = index
        self.linker = linker
        self._reaching: dict[ast.Name, list[Binding]] = {}

    def reaching(self, name: ast.Name) -> list[Binding]:
        """Return the bindings that can be in force where the name is read."""
        if name not in self._reaching:
            self._reaching[name] = self._reach(name)
        return self._reaching[name]

    def _reach(self, name: ast.Name) -> list[Binding]:
        scope = self.index.scope_of[name]
        bindings = self.linker.local_bindings(name)
        owner = self.linker.owner(name.id, scope)
        if owner is not scope or len(bindings) < 2:
            return bindings
        statement = self._enclosing(name)
        above = set(self.index.ancestors(name))
        is_later = [each.line >= name.lineno or self._statement(each) is statement for each in bindings]
        before = [each for each, later in zip(bindings, is_later, strict=True) if not later]
        kept, is_certain = self._not_replaced(before, above)
        if not is_certain:  # nothing certain came first: what comes later in the same loop may have
            loops = [each for each in above if isinstance(each, ast.For | ast.While)]
            after = [each for each, later in zip(bindings, is_later, strict=True) if later]
            kept += [each for each in after if any(loop in self.index.ancestors(each.node) for loop in loops)]
        return kept or [each for each in bindings if each.how == "parameter"]

    def _not_replaced(self, before: list[Binding], above: set[ast.AST]) -> tuple[list[Binding], bool]:
        """Return the bindings, last first, that no later one replaces, and whether one of them is in force for certain."""
        kept: list[Binding] = []
        replaced: set[tuple[ast.AST | None, str]] = set()  # blocks that give another value later
        for binding in reversed(before):
            if replaced and self._block(binding) in replaced:
                continue
            kept.append(binding)
            if binding.how != "augmented":
                if self._is_certain(binding, above):
                    return kept, True
                replaced.add(self._block(binding))
                if self._is_in_both_arms(binding, replaced, above):
                    return kept, True
        return kept, False

    def _is_in_both_arms(
        self, binding: Binding, replaced: set[tuple[ast.AST | None, str]], above: set[ast.AST]
    ) -> bool:
        """Tell whether both arms of an `if` before the reader give a value: one of them is in force."""
        choice = self.index.parents.get(self._statement(binding))
        if not isinstance(choice, ast.If) or choice in above or self.index.parents[choice] not in above:
            return False
        return {(choice, "body"), (choice, "orelse")} <= replaced

    def _is_certain(self, binding: Binding, above: set[ast.AST]) -> bool:
        """Tell whether what stands around the reader, or a `with` among it, holds the binding."""
        block = self.index.parents.get(self._statement(binding))
        while isinstance(block, ast.With | ast.AsyncWith) and block not in above:
            block = self.index.parents.get(block)
        return block in above

    def _block(self, binding: Binding) -> tuple[ast.AST | None, str]:
        """Return the block that a binding's statement stands in: an arm of an `if`, the body of a loop."""
        statement = self._statement(binding)
        parent = self.index.parents.get(statement)
        blocks = ("body", "orelse", "finalbody")
        arms = [name for name in blocks if statement in (getattr(parent, name, None) or ())]
        return parent, arms[0] if arms else f"{getattr(statement, 'lineno', 0)}"

    def _statement(self, binding: Binding) -> ast.AST:
        node = binding.node
        return node if isinstance(node, ast.stmt) else self.index.enclosing(node, ast.stmt) or node

    def _enclosing(self, name: ast.Name) -> ast.AST | None:
        return self.index.enclosing(name, ast.stmt)
