# SPDX-License-Identifier: Apache-2.0
"""Where values come from, one step back."""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from truestep.doctor.source.arguments import argument_for, bound_by_partial
from truestep.doctor.source.classes import Place, ProgramClasses
from truestep.doctor.source.functions import ProgramFunctions
from truestep.doctor.source.linking import FindModule, SourceLinker
from truestep.doctor.source.names import (
    Binding,
    Class,
    Function,
    Index,
    Scope,
    dotted_name,
    is_self,
    last_part,
)
from truestep.doctor.source.object_contents import CarriedValues


class Resolver:
    """Answers, for every node of an index, what an expression may stand for."""

    def __init__(self, index: Index, find_module: FindModule) -> None:
        self.index = index
        self.names = SourceLinker(index, find_module)
        self.classes = ProgramClasses(index, self.names, self)
        self.functions = ProgramFunctions(index, self.names, self.classes, self)
        self._definitions: dict[Place, list[ast.expr | None]] = {}
        self._blind: tuple[dict[Place, list[ast.expr | None]], dict[Place, Class | None]] = ({}, {})
        self._sees_callers = True
        self.carried = CarriedValues(index, self.names, self.classes, self)
        self._bindings_at = ReachingBindings(index, self.names)
        self.remembered: dict[tuple[object, ...], Any] = {}  # what questions with many ways to an answer gave
        self.guessed: set[Place] = set()  # of these, only the name tells the kind
        self.kinds: dict[Place, str | None] = {}

    @contextmanager
    def without_callers(self) -> Iterator[None]:
        """Answer without knowing what parameters are, and remember that apart."""
        remembered = self._definitions, self.classes.known
        (self._definitions, self.classes.known), self._sees_callers = self._blind, False
        try:
            yield
        finally:
            (self._definitions, self.classes.known), self._sees_callers = remembered, True

    def results_of(self, call: ast.Call) -> list[ast.expr]:
        """Return the expressions whose value a call of a function of the program gives back."""
        return self.functions.results(self.functions.target_within(call))

    def definitions(self, node: ast.expr) -> list[ast.expr | None]:
        """Return the expressions this one may stand for, one step back; None stands for "not known"."""
        known = self._definitions.get(node)
        if known is not None:
            return known
        place = self.place(node)
        if place not in self._definitions:
            self._definitions[place] = []  # a cycle ends here
            self._definitions[place] = self._definitions[node] = self._find_definitions(node)
        return self._definitions[place]

    def place(self, node: ast.expr) -> Place:
        """Return what to remember an answer by: the variable, where it has one value wherever it is read; else the node."""
        if type(node) is not ast.Name or node.id == "self":
            return node
        variable = self.names.variable(node)
        is_same = variable[0] is not self.index.scope_of[node] or len(self.names.local_bindings(node)) < 2
        return variable if is_same else node

    def _find_definitions(self, node: ast.expr) -> list[ast.expr | None]:
        match node:
            case ast.Name():
                return self._definitions_of_bindings(self.reaching(node), node.id)
            case ast.Attribute():
                return self._definitions_of_attribute(node)
            case ast.Subscript(slice=ast.Constant()):
                return self._definitions_of_item(node)
            case ast.IfExp():
                return [node.body, node.orelse]
            case ast.NamedExpr():
                return [node.value]
            case ast.BoolOp(op=ast.Or()):
                return list(node.values)
        return []

    def _definitions_of_attribute(self, node: ast.Attribute) -> list[ast.expr | None]:
        if node.attr not in self.index.held:
            return self._definitions_in_namespace(node)
        if (owner := self.classes.of(node.value)) is not None:
            bindings = self.attribute_bindings(owner, node.attr)
            options = [None] if any(self.index.is_option(each) for each in bindings) else []
            return [*self._definitions_of_bindings(bindings, node.attr), *options]
        tree = self.names.module_named(node.value)
        if tree is not None:
            return self._definitions_of_bindings(self.names.exported(tree, node.attr), node.attr)
        return self._definitions_in_namespace(node)

    def attribute_bindings(self, owner: Class, name: str) -> list[Binding]:
        """Return what `self.NAME` is bound to, in the class, in its bases, and from outside."""
        found: list[Binding] = []
        for each in self.classes.lineage(owner):
            found = found or self.index.attributes.get(each, {}).get(name, [])
        outside = [
            binding
            for base, binding in self.index.written.get(name, [])
            if not is_self(base) and self.classes.of(base) is owner
        ]
        return [*found, *outside] if outside else found

    def _definitions_in_namespace(self, node: ast.Attribute) -> list[ast.expr | None]:
        """Return what an object of no class in sight was given as an attribute: as it was made, or anywhere that has the object."""
        if node.attr not in self.index.written and node.attr not in self.index.keywords:
            return []
        makers = self.carried.makers(node.value)
        given = [each for maker in makers for each in self.carried.given_by_name(maker, node.attr)]
        made = [each for value in given for each in self._returned_or_value(value)]
        return [*made, *self._definitions_of_bindings(self.carried.written_to(makers, node.attr), node.attr)]

    def _definitions_of_item(self, node: ast.Subscript) -> list[ast.expr | None]:
        """Return what stands at a constant place of a dict, tuple or list that is written out."""
        assert isinstance(node.slice, ast.Constant)
        base = dotted_name(node.value)
        if base is None:
            return []
        found: list[ast.expr | None] = []
        makers = self.carried.makers(node.value)
        values = [each for each in self.definitions(node.value) if each is not None]
        values += [each for each in makers if each not in values]
        for value in values:
            found += self.part_of(value, node.slice.value) or []
        scope = self.index.scope_of[node]
        written = [
            value
            for target, key, value in self.index.items.get(scope, [])
            if key == node.slice.value and dotted_name(target) == base and value.lineno < node.lineno
        ]
        return [*found, *(written or self.carried.items_of(makers, node.slice.value))]

    def part_of(self, value: ast.expr, key: object) -> list[ast.expr | None] | None:
        """Return what stands at a key of a display or of what a function returns; None where that can't be told."""
        if isinstance(value, ast.Dict):
            keys = [each.value if isinstance(each, ast.Constant) else None for each in value.keys]
            return [part for name, part in zip(keys, value.values, strict=True) if name == key]
        if isinstance(value, (ast.Tuple, ast.List)) and isinstance(key, int):
            whole = not any(isinstance(each, ast.Starred) for each in value.elts)
            return [value.elts[key]] if whole and -len(value.elts) <= key < len(value.elts) else None
        if isinstance(value, ast.Call):
            if isinstance(value.func, ast.Name) and value.func.id == "dict":
                return [word.value for word in value.keywords if word.arg == key]
            same = self.classes.prepared(value, key) if isinstance(key, int) else None
            return self._part_of_result(value, key) if same is None else [same]
        return None

    def _part_of_result(self, call: ast.Call, key: object) -> list[ast.expr | None] | None:
        parts: list[ast.expr | None] = []
        for given in self.results_of(call):
            part = self.part_of(given, key) if isinstance(given, (ast.Tuple, ast.List, ast.Dict)) else None
            if part is None:
                return None
            parts += part
        return parts or None

    def unpacked(self, name: ast.Name) -> list[tuple[ast.expr, tuple[int, ...]]] | None:
        """Return (value, place in it) for each unpacking that gives a name its value, if nothing else does."""
        bindings = self.reaching(name)
        found = [(each.value, each.position) for each in bindings if each.how == "unpack"]
        known = [(value, position) for value, position in found if value is not None]
        return known if known and len(known) == len(bindings) else None

    def given_whole_or_in_part(self, name: ast.Name) -> list[ast.expr | None]:
        """Return what a name was given, be it a part of that."""
        return [value for value, _ in self.unpacked(name) or ()] or self.definitions(name)

    def _definitions_of_bindings(self, bindings: list[Binding], name: str) -> list[ast.expr | None]:
        found: list[ast.expr | None] = []
        for binding in bindings:
            if binding.how in ("assign", "augmented"):
                found += self._returned_or_value(binding.value)
            elif binding.how == "parameter" and binding.parameter_of is not None:
                found += self._arguments_of_parameter(binding.parameter_of, name)
            elif binding.how == "unpack" and binding.value is not None:
                found += self._unpacked_part(binding.value, binding.position)
            else:
                found.append(None)
        return found

    def _returned_or_value(self, value: ast.expr | None) -> list[ast.expr | None]:
        """Return what a call of a function of the program gives back, if that is made there; else the value itself."""
        function = self.functions.target_within(value) if isinstance(value, ast.Call) else None
        if function is None or self.index.scope_of.get(value) is function:  # type: ignore[arg-type]
            return [value]
        given = self.functions.results(function)
        made = [each for each in given if isinstance(each, (ast.Call, ast.Constant))]
        return (
            list(made)
            if made and len(made) == len(given) and not self._is_recursive(made, function)
            else [value]
        )

    def _is_recursive(self, made: list[ast.Call | ast.Constant], function: Function) -> bool:
        return any(
            isinstance(each, ast.Call) and self.functions.target_within(each) is function for each in made
        )

    def _unpacked_part(self, value: ast.expr, position: tuple[int, ...]) -> list[ast.expr | None]:
        parts: list[ast.expr | None] = [value]
        for place in position:
            inner: list[ast.expr | None] = []
            for part in parts:
                given = self.part_of(part, place) if part is not None else None
                inner += given if given is not None else [None]
            parts = inner
        return parts

    def reaching(self, name: ast.Name) -> list[Binding]:
        """Return the bindings that can be in force where the name is read."""
        return self._bindings_at.reaching(name)

    def statement(self, node: ast.AST) -> ast.stmt:
        """Return the statement that the node is part of."""
        return node if isinstance(node, ast.stmt) else self.index.enclosing(node, ast.stmt)  # type: ignore[return-value]

    def _arguments_of_parameter(self, function: Function, name: str) -> list[ast.expr | None]:
        """Return what the calls in the program give for a parameter."""
        if not self._sees_callers:
            return [None]
        found = [argument_for(function, call, name) for call in self.functions.callers(function)]
        found += [bound_by_partial(function, call, name) for call in self._partials_of(function)]
        return found or [None]

    def _partials_of(self, function: Function) -> list[ast.Call]:
        """Return the calls of `functools.partial` that bind arguments of a function."""
        named = getattr(function, "name", "")
        calls = [each for each in self.index.calls.get("partial", ()) if each.args]
        return [
            call
            for call in calls
            if last_part(call.args[0]) == named and self.functions.named(call.args[0]) is function
        ]


class ReachingBindings:
    """Goes back from a reader to what gave a name its value, as far as that is certain."""

    def __init__(self, index: Index, names: SourceLinker) -> None:
        self.index = index
        self.names = names
        self._reaching: dict[ast.Name, list[Binding]] = {}

    def reaching(self, name: ast.Name) -> list[Binding]:
        """Return the bindings that can be in force where the name is read."""
        if name not in self._reaching:
            self._reaching[name] = self._find_reaching(name)
        return self._reaching[name]

    def _find_reaching(self, name: ast.Name) -> list[Binding]:
        scope = self.index.scope_of[name]
        bindings = self.names.local_bindings(name)
        owner = self.names.owner(name.id, scope)
        if len(bindings) < 2:
            return bindings
        if owner is not scope:
            return self._reaching_in_outer_scope(name, owner, bindings)
        statement = self._enclosing_statement(name)
        above = set(self.index.ancestors(name))
        is_later = [
            each.line >= name.lineno or self._statement_of_binding(each) is statement for each in bindings
        ]
        before = [each for each, later in zip(bindings, is_later, strict=True) if not later]
        others = [each for each in before if self._is_in_other_arm(each, name, above)]
        kept, is_certain = self._bindings_not_replaced([each for each in before if each not in others], above)
        made = kept[-1] if is_certain else None
        kept += [each for each in others if self._can_bind_again(each, made, above)]
        if not is_certain:  # nothing certain came first: what comes later in the same loop may have
            loops = [each for each in above if isinstance(each, (ast.For, ast.While))]
            after = [each for each, later in zip(bindings, is_later, strict=True) if later]
            kept += [each for each in after if any(loop in self.index.ancestors(each.node) for loop in loops)]
        kept += [
            each for each in bindings if each.how == "elsewhere" and each not in kept
        ]  # whoever calls that
        return kept or [each for each in bindings if each.how == "parameter"]

    def _reaching_in_outer_scope(
        self, name: ast.Name, owner: Scope | None, bindings: list[Binding]
    ) -> list[Binding]:
        """Return the bindings of an outer scope that a function can read: none that was replaced before it stood there."""
        above = set(self.index.ancestors(name))
        outer = [
            each for each in above if isinstance(each, ast.stmt) and self.index.scope_of.get(each) is owner
        ]
        begins = max((each.lineno for each in outer), default=0)
        is_past = [
            each.line < begins and self.index.scope_of.get(self._statement_of_binding(each)) is owner
            for each in bindings
        ]
        before = [each for each, past in zip(bindings, is_past, strict=True) if past]
        kept, _ = self._bindings_not_replaced(before, above)
        return [
            each
            for each, past in zip(bindings, is_past, strict=True)
            if not past or any(each is one for one in kept)
        ]

    def _is_in_other_arm(self, binding: Binding, name: ast.Name, above: set[ast.AST]) -> bool:
        """Tell a binding in that arm of an `if` which is not taken where the name is read."""
        choice = next((each for each in self.index.ancestors(binding.node) if each in above), None)
        if not isinstance(choice, ast.If):
            return False
        arms = {self._arm_of_if(choice, each) for each in (binding.node, name)}
        return arms == {"body", "orelse"}

    def _can_bind_again(self, binding: Binding, made: Binding | None, above: set[ast.AST]) -> bool:
        """Tell a binding that an earlier turn of a loop may have come to, after what made the value for certain."""
        loops = [
            each for each in self.index.ancestors(binding.node) if isinstance(each, (ast.For, ast.While))
        ]
        anew = list(self.index.ancestors(made.node)) if made is not None else []
        return any(each in above and each not in anew for each in loops)

    def _arm_of_if(self, choice: ast.If, node: ast.AST) -> str:
        """Return the part of an `if` that a node stands in."""
        below = node
        for each in self.index.ancestors(node):
            if each is choice:
                break
            below = each
        return "body" if below in choice.body else "orelse" if below in choice.orelse else "test"

    def _bindings_not_replaced(
        self, before: list[Binding], above: set[ast.AST]
    ) -> tuple[list[Binding], bool]:
        """Return the bindings, last first, that no later one replaces, and whether one of them is in force for certain."""
        kept: list[Binding] = []
        replaced: set[tuple[ast.AST | None, str]] = set()  # blocks that give another value later
        for binding in reversed(before):
            if replaced and self._block_of_binding(binding) in replaced:
                continue
            kept.append(binding)
            if binding.how != "augmented":
                if self._is_certain_binding(binding, above):
                    return kept, True
                replaced.add(self._block_of_binding(binding))
                if self._is_in_both_arms(binding, replaced, above):
                    return kept, True
        return kept, False

    def _is_in_both_arms(
        self, binding: Binding, replaced: set[tuple[ast.AST | None, str]], above: set[ast.AST]
    ) -> bool:
        """Tell whether both arms of an `if` before the reader give a value: one of them is in force."""
        choice = self.index.parents.get(self._statement_of_binding(binding))
        if not isinstance(choice, ast.If) or choice in above or self.index.parents[choice] not in above:
            return False
        return {(choice, "body"), (choice, "orelse")} <= replaced

    def _is_certain_binding(self, binding: Binding, above: set[ast.AST]) -> bool:
        """Tell whether what stands around the reader, or a `with` among it, holds the binding."""
        block = self.index.parents.get(self._statement_of_binding(binding))
        while isinstance(block, (ast.With, ast.AsyncWith)) and block not in above:
            block = self.index.parents.get(block)
        return block in above

    def _block_of_binding(self, binding: Binding) -> tuple[ast.AST | None, str]:
        """Return the block that a binding's statement stands in: an arm of an `if`, the body of a loop."""
        statement = self._statement_of_binding(binding)
        parent = self.index.parents.get(statement)
        blocks = ("body", "orelse", "finalbody")
        arms = [name for name in blocks if statement in (getattr(parent, name, None) or ())]
        return parent, arms[0] if arms else f"{getattr(statement, 'lineno', 0)}"

    def _statement_of_binding(self, binding: Binding) -> ast.AST:
        node = binding.node
        return node if isinstance(node, ast.stmt) else self.index.enclosing(node, ast.stmt) or node

    def _enclosing_statement(self, name: ast.Name) -> ast.AST | None:
        return self.index.enclosing(name, ast.stmt)
