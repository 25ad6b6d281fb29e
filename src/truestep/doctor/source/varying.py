# SPDX-License-Identifier: Apache-2.0
"""What has another value in each batch: counters, numbers that a library gives, and what it tells of its progress."""

import ast

from truestep.doctor.library.loops import CHANGES
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.resolving import Resolver


class Varying:
    """Knows the counters of a program."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.numbered: set[ast.AST] = set()  # parameters that a library gives the number of the batch

    def is_asked_by(self, test: ast.expr) -> bool:
        """Tell a test of a counter: what stands behind `continue` is done in the other batches."""
        return any(isinstance(each, ast.Mod) or self.counts(each) for each in walk(test))

    def counts(self, node: ast.AST) -> bool:
        """Tell whether a name has another value in each batch: no world can choose one for it."""
        if isinstance(node, ast.Attribute):
            return self._is_told(node) or self._is_added_to(node)
        if not isinstance(node, ast.Name):
            return False
        bindings = self.resolver.names.bindings(node)
        return any(each.how in ("augmented", "for") or each.node in self.numbered for each in bindings)

    def _is_told(self, node: ast.Attribute) -> bool:
        return node.attr in CHANGES or ".".join((dotted(node) or "").split(".")[-2:]) in CHANGES

    def _is_added_to(self, node: ast.Attribute) -> bool:
        owner = self.resolver.classes.of(node.value) if node.attr in self.resolver.index.held else None
        bindings = self.resolver.attribute_bindings(owner, node.attr) if owner is not None else []
        return any(each.how == "augmented" for each in bindings)
