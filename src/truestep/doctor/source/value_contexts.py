# SPDX-License-Identifier: Apache-2.0
"""Values in their context: what a parameter stands for in this call, which object that is, what a test gives.

An object is known by where it was made and in which call, with the attributes that lead to it; so an optimizer keeps
its identity under another name, in another function and in another file.
"""

import ast
from collections.abc import Mapping
from typing import Any

from truestep.doctor.source.arguments import arguments_of
from truestep.doctor.source.constant_evaluation import ExpressionValues
from truestep.doctor.source.frames import (
    TOP,
    CallFrame,
    LocatedExpression,
    UnknownValue,
    World,
)
from truestep.doctor.source.names import Binding, Class, Function, Index, dotted_name, is_none
from truestep.doctor.source.resolving import Resolver

MAX_STEPS = 12  # from a name back to where its value was made
MAX_DEPTH = 12  # of questions within questions

_Place = tuple[ast.expr, CallFrame]


class CallFrames(ExpressionValues):
    """Follows expressions back through calls, and evaluates tests as far as a world decides them."""

    def __init__(self, resolver: Resolver) -> None:
        super().__init__()
        self.resolver = resolver
        self.index = resolver.index
        self._entry: ast.AST | None = None
        self._keys: dict[_Place, tuple[str, tuple[str, ...]]] = {}
        self._origins: dict[_Place, tuple[LocatedExpression, tuple[str, ...]]] = {}
        self._of_world: list[_Place] = []  # whose answers may be other ones in another world
        self._frames: dict[tuple[object, ...], CallFrame] = {}
        self._given: dict[tuple[Function, ast.Call], list[tuple[str, ast.expr, bool]]] = {}
        self._depth = 0
        self._places: dict[ast.AST, str] = {}
        # what is the same in every call
        self._only_bindings: dict[ast.Name, Binding | None] = {}
        self._given_once: dict[tuple[Class, str], Binding | None] = {}
        self._run_by: dict[ast.Call, Function | None] = {}

    # ── where a value was made ────────────────────────────────────────────────────────────────

    def origin(self, value: LocatedExpression) -> LocatedExpression:
        """Return the expression that made a value, in its call; the value itself where that can't be seen."""
        place = (value.node, value.context)
        if (known := self._origins.get(place)) is not None:
            if known[1]:
                self.asked += known[1]
            return known[0]
        self._origins[place] = value, ()  # a cycle ends here
        made, before = value, len(self.asked)
        for _ in range(MAX_STEPS if self._depth < MAX_DEPTH else 0):
            self._depth += 1
            found = self._origin_one_step_back(made)
            self._depth -= 1
            if found is None:
                break
            made = found
        self._origins[place] = made, self._variables_asked_since(before, place)
        return made

    def _variables_asked_since(self, before: int, place: _Place) -> tuple[str, ...]:
        """Return what was asked of the world for the answer about a place."""
        if len(self.asked) == before:
            return ()
        self._of_world.append(place)
        return tuple(dict.fromkeys(self.asked[before:]))

    def choose(self, world: World, entry: ast.AST) -> None:
        """Give the variables of a world their values; what was found in another world of this entry stays, if it asked of none."""
        self.world = world
        self.asked.clear()
        self._depth = 0
        tables: list[dict[Any, Any]] = [self._keys, self._origins, self._frames]
        for table in tables:
            if entry is not self._entry:
                table.clear()
            for place in self._of_world:
                table.pop(place, None)
        self._entry = entry
        self._of_world.clear()

    def _origin_one_step_back(self, value: LocatedExpression) -> LocatedExpression | None:
        match value.node:
            case ast.Name():
                return self._origin_of_name(value.node, value.context)
            case ast.Attribute():
                return self._sources_of_attribute(value.node, value.context)
            case ast.Call():
                return self._origin_of_call(value.node, value.context)
            case ast.Subscript(slice=ast.Constant(value=key)):
                base = self.origin(LocatedExpression(value.node.value, value.context))
                part = _only_value(self.resolver.part_of(base.node, key), base.context)
                return part or _only_value(self.resolver.definitions(value.node), value.context)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                decided = self.test(LocatedExpression(test, value.context))
                if not isinstance(decided, UnknownValue):
                    return LocatedExpression(body if decided else orelse, value.context)
            case ast.NamedExpr(value=given):
                return LocatedExpression(given, value.context)
        return None

    def _origin_of_name(self, name: ast.Name, context: CallFrame) -> LocatedExpression | None:
        if name not in self._only_bindings:
            self._only_bindings[name] = _only_binding(self.resolver, name)
        binding = self._only_bindings[name]
        if binding is None:
            return None
        if binding.how == "parameter":
            return _argument_in_frame(binding.parameter_of, name.id, context)
        scope = self.index.scope_of[binding.node]
        home = context.of(scope if isinstance(scope, Function) else None) or TOP
        assert binding.value is not None
        if binding.how == "assign":
            return LocatedExpression(binding.value, home)
        return self._origin_of_unpacked(LocatedExpression(binding.value, home), binding.position)

    def _origin_of_unpacked(
        self, value: LocatedExpression, position: tuple[int, ...]
    ) -> LocatedExpression | None:
        for place in position:
            made = self.origin(value)
            if isinstance(made.node, ast.Call):
                inside = self.entered(made.node, made.context)
                given = self.resolver.functions.results(inside.function) if inside and inside.function else []
                if len(given) != 1 or inside is None:
                    return None
                made = self.origin(LocatedExpression(given[0], inside))
            found = _only_value(self.resolver.part_of(made.node, place), made.context)
            if found is None:
                return None
            value = found
        return value

    def _sources_of_attribute(self, node: ast.Attribute, context: CallFrame) -> LocatedExpression | None:
        if node.attr not in self.index.held and node.attr not in self.index.keywords:
            return None
        base = self.origin(LocatedExpression(node.value, context))
        owner = self.class_of(base)
        if owner is not None:
            return self._origin_in_object(base, owner, node.attr)
        tree = self.resolver.names.module_named(node.value)
        bindings = self.resolver.names.exported(tree, node.attr) if tree is not None else []
        if len(bindings) == 1 and bindings[0].how == "assign" and bindings[0].value is not None:
            return LocatedExpression(bindings[0].value, TOP)
        return _origin_carried_by_object(self, base, node.attr)

    def class_of(self, made: LocatedExpression) -> Class | None:
        """Return the class of an object, by the call that made it or by what its name can be."""
        if isinstance(made.node, ast.Call) and (owner := self.resolver.classes.named(made.node.func)):
            return owner
        return self.resolver.classes.of(made.node)

    def _origin_in_object(self, base: LocatedExpression, owner: Class, name: str) -> LocatedExpression | None:
        """Return what an attribute was given when the object was made."""
        if (owner, name) not in self._given_once:
            self._given_once[owner, name] = _only_attribute_binding(self.resolver, owner, name)
        binding = self._given_once[owner, name]
        if binding is None:
            return None
        assert binding.value is not None
        if self.index.is_option(binding):
            option = _option_values(base, name)
            if option is None or option:
                return option[0] if option else None
        scope = self.index.scope_of[binding.node]
        function = scope if isinstance(scope, Function) else None
        context = self._method_context(base, function)
        if binding.how == "assign":
            return LocatedExpression(binding.value, context)
        return self._origin_of_unpacked(LocatedExpression(binding.value, context), binding.position)

    def _method_context(self, base: LocatedExpression, function: Function | None) -> CallFrame:
        """Return a call of a method of this object: of its constructor, by which it was made."""
        if isinstance(base.node, ast.Call) and getattr(function, "name", "") == "__init__":
            made = self.entered(base.node, base.context)
            if made is not None and made.function is function:
                return made
        frame = CallFrame(function, {"self": base}, None, base.context.number)
        return self._frames.setdefault((function, base.node, base.context, "made"), frame)

    def _origin_of_call(self, call: ast.Call, context: CallFrame) -> LocatedExpression | None:
        inner = self.resolver.classes.unwrapped(call)
        if inner is not None:
            return LocatedExpression(inner, context)
        if self.resolver.classes.named(call.func) is not None:
            return None
        inside = self.entered(call, context)
        if inside is None or inside.function is None:
            return None
        given = self.resolver.functions.results(inside.function)
        return LocatedExpression(given[0], inside) if len(given) == 1 else None

    # ── calls ─────────────────────────────────────────────────────────────────────────────────

    def entered(self, call: ast.Call, context: CallFrame) -> CallFrame | None:
        """Return the call's own context, if a function of the program runs."""
        if call not in self._run_by:
            self._run_by[call] = self.resolver.functions.called(call)
        function = self._run_by[call] or self._bound_method(call, context)
        return self.enter(function, call, context) if function is not None else None

    def _bound_method(self, call: ast.Call, context: CallFrame) -> Function | None:
        """Return what a call runs where only this context tells of what class its object is, or which function it is."""
        if isinstance(call.func, ast.Attribute):
            held = call.func.attr in self.index.held
            owner = self.class_of(self.origin(LocatedExpression(call.func.value, context))) if held else None
            return self.resolver.classes.method(owner, call.func.attr)
        made = self.origin(LocatedExpression(call.func, context))
        if isinstance(made.node, (ast.Name, ast.Attribute, ast.Lambda)) and made.node is not call.func:
            return self.resolver.functions.named(made.node)
        return None

    def enter(self, function: Function, call: ast.Call, context: CallFrame) -> CallFrame:
        """Return the context in which a function runs when it is called so: the same one in every world."""
        key = (function, call, context)
        if key not in self._frames:
            arguments = self._argument_values(function, call, context)
            self._frames[key] = CallFrame(function, arguments, context, hash((id(call), context.number)))
        return self._frames[key]

    def enter_for(
        self, function: Function, who: ast.AST, context: CallFrame, known: Mapping[str, LocatedExpression]
    ) -> CallFrame:
        """Return the context in which a function runs that no call in sight runs: a library does, or a with block."""
        frame = CallFrame(function, known, context, context.number)
        return self._frames.setdefault((function, who, context), frame)

    def _argument_values(
        self, function: Function, call: ast.Call, context: CallFrame
    ) -> dict[str, LocatedExpression]:
        if (function, call) not in self._given:
            self._given[function, call] = arguments_of(function, call)
        given = self._given[function, call]
        arguments = {name: LocatedExpression(node, TOP if own else context) for name, node, own in given}
        first = function.args.args[0].arg if function.args.args else ""
        if first == "self" and "self" not in arguments:
            made = self.resolver.classes.named(call.func) is not None
            receiver = call if made else call.func
            if not made and isinstance(call.func, ast.Attribute) and _is_method_call(call, function):
                receiver = call.func.value
            arguments["self"] = _receiver_object(receiver, context)
        return arguments

    # ── identity ──────────────────────────────────────────────────────────────────────────────

    def key(self, value: LocatedExpression) -> str:
        """Return a text that is the same wherever the same object is meant; a name for it stands before the @."""
        place = (value.node, value.context)
        if (known := self._keys.get(place)) is not None:
            if known[1]:
                self.asked += known[1]
            return known[0]
        self._keys[place] = "?", ()  # a cycle ends here
        before = len(self.asked)
        found = self._make_key(value)
        self._keys[place] = found, self._variables_asked_since(before, place)
        return found

    def _make_key(self, value: LocatedExpression) -> str:
        node, context = value.node, value.context
        if isinstance(node, ast.Attribute):
            return self._key_of_attribute(node, context)
        if (before := self._origin_one_step_back(value)) is not None:
            return self.key(before)
        if isinstance(node, ast.Name):
            return self._key_of_name(node, context)
        if isinstance(node, ast.Subscript):
            return f"{self.key(LocatedExpression(node.value, context))}[{ast.unparse(node.slice)}]"
        return f"{_name_kept_by_maker(self.index, node)}@{self._node_address(node)}:{context.number}"

    def _key_of_attribute(self, node: ast.Attribute, context: CallFrame) -> str:
        """A part is known by its whole: `self.body`, made with the model, as the model's; what was handed in as itself."""
        made = self._sources_of_attribute(node, context)
        whole = self.origin(LocatedExpression(node.value, context))
        if made is not None:
            source = self.origin(made)
            owner = source.context.arguments.get("self")
            if owner is None or self.origin(owner).node is not whole.node:
                return self.key(made)
        return f"{self.key(LocatedExpression(node.value, context))}.{node.attr}"

    def _key_of_name(self, node: ast.Name, context: CallFrame) -> str:
        bindings: list[Binding] = self.resolver.names.local_bindings(node)
        if node.id == "self":
            owner = self.index.enclosing(node, ast.ClassDef)
            return owner.name if owner is not None else "self"
        return self.slot_of(bindings[0].node, node.id, context) if bindings else node.id

    def slot_of(self, binding: ast.AST, name: str, context: CallFrame) -> str:
        """Return the name of the variable that a binding gives its first value."""
        scope = self.index.scope_of[binding]
        home = context.of(scope) if isinstance(scope, Function) else None
        return f"{name}@{self._node_address(binding)}:{home.number if home else 0}"

    def _node_address(self, node: ast.AST) -> str:
        if node not in self._places:
            line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
            self._places[node] = f"{id(self.index.tree_of(node))}:{line}:{column}"
        return self._places[node]

    def slot(self, value: LocatedExpression) -> str:
        """Return the name of the variable itself, whatever it holds."""
        if isinstance(value.node, ast.Name):
            return self._key_of_name(value.node, value.context)
        if isinstance(value.node, ast.Attribute):
            return f"{self.key(LocatedExpression(value.node.value, value.context))}.{value.node.attr}"
        return ""

    def variable(self, value: LocatedExpression) -> str:
        """Return the name under which a world gives an expression its value; calls are each a variable of their own."""
        if isinstance(value.node, (ast.Name, ast.Attribute, ast.Subscript)):
            return self.key(value)
        # an expression begins where its first part does: the kind tells them apart
        return f"({type(value.node).__name__}:{self._node_address(value.node)}:{value.context.number})"


def _origin_carried_by_object(
    contexts: CallFrames, base: LocatedExpression, name: str
) -> LocatedExpression | None:
    """Return what an object of no class in sight was given as an attribute, where it was once, in the call that made it."""
    if given := contexts.resolver.carried.given_by_name(base.node, name):
        return LocatedExpression(given[0], base.context)
    bindings = (
        contexts.resolver.carried.written_to({base.node}, name) if isinstance(base.node, ast.Call) else []
    )
    if len(bindings) != 1 or bindings[0].how != "assign" or bindings[0].value is None:
        return None
    scope = contexts.index.scope_of[bindings[0].node]
    home = base.context.of(scope) if isinstance(scope, Function) else TOP
    return LocatedExpression(bindings[0].value, home) if home is not None else None


def _only_binding(resolver: Resolver, name: ast.Name) -> Binding | None:
    """Return what gives a name its value, where that is one parameter or one assignment."""
    bindings = resolver.reaching(name)
    if name.id == "self" and bindings and bindings[0].how == "parameter":
        return bindings[0]
    (binding,) = bindings if len(bindings) == 1 else (None,)
    if binding is None or binding.how == "parameter":
        return binding
    return binding if binding.value is not None and binding.how in ("assign", "unpack") else None


def _only_attribute_binding(resolver: Resolver, owner: Class, name: str) -> Binding | None:
    """Return what gives an attribute its value, where that is one assignment."""
    bindings = resolver.attribute_bindings(owner, name)
    given = [each for each in bindings if each.value is not None and not is_none(each.value)]
    return given[0] if len(given) == 1 and given[0].how in ("assign", "unpack") else None


def _only_value(parts: list[ast.expr | None] | None, context: CallFrame) -> LocatedExpression | None:
    given = [each for each in parts or () if each is not None]
    return LocatedExpression(given[0], context) if parts and len(given) == len(parts) == 1 else None


def _argument_in_frame(function: Function | None, name: str, context: CallFrame) -> LocatedExpression | None:
    home = context.of(function)
    return home.arguments.get(name) if home is not None and function is not None else None


def _option_values(base: LocatedExpression, name: str) -> list[LocatedExpression] | None:
    """Return what an object in sight was made with for an option; nothing where it was left out: `Config()`."""
    call = base.node
    if not isinstance(call, ast.Call) or call.args or any(word.arg is None for word in call.keywords):
        return None
    return [LocatedExpression(word.value, base.context) for word in call.keywords if word.arg == name]


def _is_method_call(call: ast.Call, function: Function) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == getattr(function, "name", "")


def _receiver_object(node: ast.expr, context: CallFrame) -> LocatedExpression:
    """`super().method()` runs on the object itself."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
        own = context.arguments.get("self")
        if own is not None:
            return own
    return LocatedExpression(node, context)


def _name_kept_by_maker(index: Index, node: ast.expr) -> str:
    """Return the name under which the maker of an object keeps it."""
    parent = index.parents.get(node)
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    return next((name.rsplit(".", 1)[-1] for each in targets if (name := dotted_name(each))), "")


def forward_frame(contexts: CallFrames, call: ast.Call, context: CallFrame) -> CallFrame | None:
    """Return the context of the forward that a call of a module runs."""
    if isinstance(call.func, ast.Lambda):
        return None
    owner = contexts.class_of(contexts.origin(LocatedExpression(call.func, context)))
    function = contexts.resolver.classes.method(owner, "forward")
    return contexts.enter(function, call, context) if function is not None else None
