# SPDX-License-Identifier: Apache-2.0
"""A Python file as the checks see it: calls by their full name, and where values come from."""

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from truestep.doctor.replacement import lines_of, parsed
from truestep.doctor.source import kinds
from truestep.doctor.source.names import Binder, Binding, Function, Scope, dotted, imported, public

if TYPE_CHECKING:
    from truestep.doctor.source.events import Trace

Node = TypeVar("Node", bound=ast.AST)
Class = ast.ClassDef
_USUAL = {"nn": "torch.nn", "F": "torch.nn.functional", "optim": "torch.optim", "np": "numpy"}
_MOVES = {
    "to", "cuda", "cpu", "double", "float", "half", "bfloat16", "train", "eval", "requires_grad_"
}  # fmt: skip
MAX_DEPTH = 8  # how many assignments and calls a value is followed through


class SourceModule:
    """One parsed file."""

    def __init__(self, text: str, path: str = "<text>") -> None:
        self.path = path
        self.text = text
        self.lines = lines_of(text)
        self.tree = parsed(text, path)
        self._binder = Binder(self.tree)
        self.parents = self._binder.parents
        self.children = self._binder.children
        self._qualified: dict[ast.AST, str | None] = {}
        self._definitions: dict[ast.AST, list[ast.expr | None]] = {}
        self._kinds: dict[ast.AST, str | None] = {}
        self._classes_of: dict[ast.expr, Class | None] = {}
        self.remembered: dict[tuple[object, ...], Any] = {}  # what questions with many ways to an answer gave
        self._callers_known = True
        self.was_followed = False  # whether anyone asked for the order of calls

    # ── looking around ────────────────────────────────────────────────────────────────────────

    def all(self, *types: type[Node]) -> list[Node]:
        """Return every node of these types, in the order of the file."""
        found = [node for kind in types for node in self._binder.nodes.get(kind, [])]
        if len(types) > 1:
            found.sort(key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))
        return found  # type: ignore[return-value]

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what encloses the node, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def enclosing(self, node: ast.AST, *types: type[Node]) -> Node | None:
        """Return the innermost enclosing node of these types."""
        return next((each for each in self.ancestors(node) if isinstance(each, types)), None)

    def loop(self, node: ast.AST) -> ast.For | ast.While | None:
        """Return the innermost loop around a node, in whatever function that stands."""
        found = self.enclosing(node, ast.For, ast.While)
        return found if isinstance(found, ast.For | ast.While) else None

    def reads(self, name: str) -> list[ast.expr]:
        """Return every place that reads a name or a chain of attributes (`self.opt`)."""
        nodes: list[ast.Name | ast.Attribute] = [*self.all(ast.Name), *self.all(ast.Attribute)]
        found = [node for node in nodes if isinstance(node.ctx, ast.Load) and dotted(node) == name]
        return sorted(found, key=lambda node: (node.lineno, node.col_offset))

    def scope(self, node: ast.AST) -> Scope:
        """Return the function or module in whose body the node stands."""
        return self._binder.scope_of[node]

    def statement(self, node: ast.AST) -> ast.stmt:
        """Return the statement that the node is part of."""
        return node if isinstance(node, ast.stmt) else self.enclosing(node, ast.stmt)  # type: ignore[return-value]

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Every named function and method."""
        return self.all(ast.FunctionDef, ast.AsyncFunctionDef)

    @cached_property
    def _calls(self) -> dict[str, list[ast.Call]]:
        found: dict[str, list[ast.Call]] = {}
        for call in self.all(ast.Call):
            name = self.qualify(call.func)
            if name:
                found.setdefault(name, []).append(call)
        return found

    @cached_property
    def _methods(self) -> dict[str, list[ast.Call]]:
        found: dict[str, list[ast.Call]] = {}
        for call in self.all(ast.Call):
            if isinstance(call.func, ast.Attribute):
                found.setdefault(call.func.attr, []).append(call)
        return found

    def calls(self, *names: str) -> list[ast.Call]:
        """Return the calls of these full names (`torch.nn.functional.dropout`)."""
        return [call for name in names for call in self._calls.get(name, [])]

    def calls_matching(self, prefix: str) -> list[tuple[str, ast.Call]]:
        """Return (full name, call) for every call whose full name starts so."""
        return [
            (name, call) for name, calls in self._calls.items() if name.startswith(prefix) for call in calls
        ]

    def method_calls(self, *names: str) -> list[ast.Call]:
        """Return the calls `x.NAME(...)` whatever x is."""
        return [call for name in names for call in self._methods.get(name, [])]

    @cached_property
    def _returns(self) -> dict[Scope, list[ast.Return]]:
        found: dict[Scope, list[ast.Return]] = {}
        for node in self.all(ast.Return):
            found.setdefault(self.scope(node), []).append(node)
        return found

    def returns(self, function: Function) -> list[ast.Return]:
        """Return the statements that return a value from a function."""
        return [node for node in self._returns.get(function, []) if node.value is not None]

    @cached_property
    def identifiers(self) -> set[str]:
        """Every name, attribute and keyword that the code uses; imports alone don't count."""
        names = {node.id for node in self.all(ast.Name)} | {node.attr for node in self.all(ast.Attribute)}
        return names | {node.arg for node in self.all(ast.keyword) if node.arg}

    @property
    def traces(self) -> "list[Trace]":
        """What happens in which order, from each place where this file can be entered."""
        self.was_followed = True
        return [each for each in self.followed if each.complete]

    @cached_property
    def followed(self) -> "list[Trace]":
        """The traces, and those that had to be cut: what would come last in them is not known."""
        from truestep.doctor.source.events import trace_module

        return trace_module(self)

    # ── names ─────────────────────────────────────────────────────────────────────────────────

    def bindings(self, name: ast.Name) -> list[Binding]:
        """Return the places that bind this name in the scope that owns it."""
        scope = self._owner(name.id, self.scope(name))
        return self._binder.names[scope].bindings[name.id] if scope is not None else []

    def _owner(self, name: str, scope: Scope) -> Scope | None:
        current: ast.AST | None = scope
        while current is not None:
            if isinstance(current, Function | ast.Module) and current in self._binder.names:
                names = self._binder.names[current]
                if name in names.bindings and name not in names.declared_outside:
                    return current
            current = self.parents.get(current)
        return None

    def qualify(self, node: ast.expr) -> str | None:
        """Return the full name of what an expression refers to, if it was imported or is a builtin."""
        if node not in self._qualified:
            self._qualified[node] = self._qualify(node)
        return self._qualified[node]

    def _qualify(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Attribute):
            base = self.qualify(node.value)
            return public(f"{base}.{node.attr}") if base else None
        if not isinstance(node, ast.Name):
            return None
        bindings = self.bindings(node)
        if not bindings:
            return _USUAL.get(node.id, node.id)  # a builtin, a star import, or a cell without its imports
        imports = [binding.node for binding in bindings if binding.how == "import"]
        if len(imports) != len(bindings):
            return self._alias(bindings)
        # what is imported for want of something better comes last
        imports.sort(key=lambda each: isinstance(self.parents[each], ast.ExceptHandler), reverse=True)
        for alias_node in reversed(imports):
            if found := imported(alias_node, node.id):
                return public(found)
        return None

    def _alias(self, bindings: list[Binding]) -> str | None:
        """Follow `Tensor = torch.cuda.FloatTensor`, where it is the only assignment."""
        values = [binding.value for binding in bindings if binding.how == "assign"]
        if len(values) == len(bindings) == 1 and values[0] is not None and dotted(values[0]):
            return self.qualify(values[0])
        return None

    # ── values ────────────────────────────────────────────────────────────────────────────────

    def definitions(self, node: ast.expr) -> list[ast.expr | None]:
        """Return the expressions this one may stand for, one step back; None stands for "not known"."""
        if node not in self._definitions:
            self._definitions[node] = []  # a cycle ends here
            self._definitions[node] = self._define(node)
        return self._definitions[node]

    def _define(self, node: ast.expr) -> list[ast.expr | None]:
        if isinstance(node, ast.Name):
            return self._define_from(self._reaching(node), node.id)
        if isinstance(node, ast.Attribute) and (owner := self.class_of(node.value)):
            bindings = self._binder.attributes.get(owner, {}).get(node.attr, [])
            return self._define_from(bindings, node.attr)
        if isinstance(node, ast.IfExp):
            return [node.body, node.orelse]
        if isinstance(node, ast.NamedExpr):
            return [node.value]
        return []

    def unpacked(self, name: ast.Name) -> list[tuple[ast.expr, tuple[int, ...]]] | None:
        """Return (value, place in it) for each unpacking that gives a name its value, if nothing else does."""
        bindings = self._reaching(name)
        found = [(each.value, each.position) for each in bindings if each.how == "unpack"]
        known = [(value, position) for value, position in found if value is not None]
        return known if known and len(known) == len(bindings) else None

    def _define_from(self, bindings: list[Binding], name: str) -> list[ast.expr | None]:
        found: list[ast.expr | None] = []
        for binding in bindings:
            if binding.how in ("assign", "augmented"):
                found.append(binding.value)
            elif binding.how == "parameter" and binding.parameter_of is not None:
                found += self._arguments(binding.parameter_of, name)
            else:
                found.append(None)
        return found

    def _reaching(self, name: ast.Name) -> list[Binding]:
        """Return the bindings that can be in force where the name is read."""
        bindings = self.bindings(name)
        owner = self._owner(name.id, self.scope(name))
        if owner is not self.scope(name) or len(bindings) < 2:
            return bindings
        above = set(self.ancestors(name))
        loops = [each for each in above if isinstance(each, ast.For | ast.While)]
        statement = self.statement(name)
        before = [
            each for each in bindings if each.line < name.lineno and self._statement(each) is not statement
        ]
        kept: list[Binding] = []
        for binding in reversed(before):
            kept.append(binding)
            if self.parents.get(self._statement(binding)) in above and binding.how != "augmented":
                break
        else:
            # nothing certain came first: what comes later in the same loop may have
            kept += [
                each
                for each in bindings
                if each not in before and any(loop in self.ancestors(each.node) for loop in loops)
            ]
        return kept or [each for each in bindings if each.how == "parameter"]

    def _statement(self, binding: Binding) -> ast.AST:
        return (
            binding.node
            if isinstance(binding.node, ast.stmt)
            else self.enclosing(binding.node, ast.stmt) or binding.node
        )

    def _arguments(self, function: Function, name: str) -> list[ast.expr | None]:
        """Return what the calls in this file give for a parameter."""
        if not self._callers_known:
            return [None]
        found = [self.argument_for(function, call, name) for call in self.callers.get(function, [])]
        return found or [None]

    @cached_property
    def callers(self) -> dict[Function, list[ast.Call]]:
        """The calls in this file of each function in it."""
        found: dict[Function, list[ast.Call]] = {}
        remembered = self._definitions, self._classes_of
        # until then parameters are not known
        self._definitions, self._classes_of, self._callers_known = {}, {}, False
        for call in self.all(ast.Call):
            if target := self.target(call) or self.constructor(call):
                found.setdefault(target, []).append(call)
        self._definitions, self._classes_of = remembered
        self._callers_known = True
        return found

    def argument_for(self, function: Function, call: ast.Call, name: str) -> ast.expr | None:
        """Return the expression that a call gives for one parameter, or its default."""
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.value
        positional = [argument.arg for argument in [*function.args.posonlyargs, *function.args.args]]
        bound = bool(positional) and positional[0] in ("self", "cls")
        positions = positional[1:] if bound else positional
        if name in positions and positions.index(name) < len(call.args):
            given = call.args[positions.index(name)]
            return None if isinstance(given, ast.Starred) else given
        defaults = dict(zip(reversed(positional), reversed(function.args.defaults), strict=False))
        named = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        defaults |= {argument.arg: default for argument, default in named if default is not None}
        return defaults.get(name)

    def target(self, call: ast.Call) -> Function | None:
        """Return the function or method of this file that a call runs, if exactly one can be meant."""
        if isinstance(call.func, ast.Name):
            return self.function_named(call.func)
        if isinstance(call.func, ast.Attribute) and (owner := self.class_of(call.func.value)):
            return self.method(owner, call.func.attr)
        return None

    def constructor(self, call: ast.Call) -> Function | None:
        """Return the `__init__` that a call of a class of this file runs."""
        if isinstance(call.func, ast.Name) and call.func.id in self.classes:
            return self.method(self.classes[call.func.id], "__init__")
        return None

    def function_named(self, name: ast.expr) -> Function | None:
        """Return the function of this file that a name stands for."""
        if isinstance(name, ast.Lambda):
            return name
        if not isinstance(name, ast.Name):
            return None
        nodes = [binding.node for binding in self.bindings(name)]
        if len(nodes) == 1 and isinstance(nodes[0], ast.FunctionDef | ast.AsyncFunctionDef):
            return nodes[0]
        return None

    def method(self, owner: Class, name: str) -> Function | None:
        """Return the method of a class of this file, or of its bases in this file."""
        for each in self.lineage(owner):
            for binding in reversed(self._binder.attributes.get(each, {}).get(name, [])):
                if isinstance(binding.node, ast.FunctionDef | ast.AsyncFunctionDef):
                    return binding.node
        return None

    def attribute_values(self, owner: Class, name: str) -> list[Binding]:
        """Return what `self.NAME` is bound to in a class."""
        return self._binder.attributes.get(owner, {}).get(name, [])

    def attributes(self, owner: Class) -> dict[str, list[Binding]]:
        """Return every `self.NAME` and class-level name that a class binds."""
        return self._binder.attributes.get(owner, {})

    # ── classes and kinds ─────────────────────────────────────────────────────────────────────

    @cached_property
    def classes(self) -> dict[str, Class]:
        """The classes of this file by name."""
        return {node.name: node for node in self.all(ast.ClassDef)}

    def lineage(self, owner: Class) -> list[Class]:
        """Return a class and its bases in this file, nearest first."""
        found: list[Class] = []
        waiting = [owner]
        while waiting and len(found) < MAX_DEPTH:
            current = waiting.pop(0)
            if current not in found:
                found.append(current)
                waiting += [
                    self.classes[base.id]
                    for base in current.bases
                    if isinstance(base, ast.Name) and base.id in self.classes
                ]
        return found

    def class_kind(self, owner: Class) -> str | None:
        """Return what an instance of a class of this file is."""
        for each in self.lineage(owner):
            for base in each.bases:
                qualified = self.qualify(base)
                if qualified and (kind := kinds.of_base(qualified)):
                    return kind
        return None

    def classes_of_kind(self, *wanted: str) -> list[Class]:
        """Return the classes of this file whose instances are of these kinds."""
        return [each for each in self.classes.values() if self.class_kind(each) in wanted]

    def class_of(self, node: ast.expr) -> Class | None:
        """Return the class of this file that an expression is an instance of."""
        if node not in self._classes_of:
            self._classes_of[node] = None  # a cycle ends here
            self._classes_of[node] = self._class_of(node)
        return self._classes_of[node]

    def _class_of(self, node: ast.expr) -> Class | None:
        if isinstance(node, ast.Name) and node.id == "self":
            return self.enclosing(node, ast.ClassDef)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in self.classes:
                return self.classes[node.func.id]
            if (inner := self.unwrapped(node)) is not None:
                return self.class_of(inner)
            return None
        found = {self.class_of(each) if each is not None else None for each in self.definitions(node)}
        return found.pop() if len(found) == 1 else None

    def unwrapped(self, call: ast.Call) -> ast.expr | None:
        """Return x for `x.to(...)`, `x.cuda()`, `DDP(x)`, `torch.compile(x)`: the same module, elsewhere."""
        name = self.qualify(call.func) or ""
        if name in ("torch.compile", "torch.nn.SyncBatchNorm.convert_sync_batchnorm") or name.startswith(
            "torch.nn.parallel."
        ):
            return call.args[0] if call.args else None
        if isinstance(call.func, ast.Attribute) and call.func.attr in _MOVES:
            return call.func.value
        return None

    def kind(self, node: ast.expr, depth: int = 0) -> str | None:
        """Return what sort of thing an expression is: optimizer, module, loader, loss, ..."""
        if node not in self._kinds:
            self._kinds[node] = None
            self._kinds[node] = self._kind(node, depth)
        return self._kinds[node]

    def _kind(self, node: ast.expr, depth: int) -> str | None:
        if isinstance(node, ast.Call):
            return self._call_kind(node, depth)
        if depth > MAX_DEPTH:
            return None
        found = [
            each
            for each in self.definitions(node)
            if not (isinstance(each, ast.Constant) and each.value is None)
        ]
        known = {self.kind(each, depth + 1) for each in found if each is not None}
        if len(known) == 1 and None not in found and (kind := known.pop()) is not None:
            return kind
        if found and None not in found and all(isinstance(each, ast.Constant | ast.BinOp) for each in found):
            return None
        last = dotted(node)
        return kinds.of_name(last.rsplit(".", 1)[-1]) if last else None

    def _call_kind(self, call: ast.Call, depth: int) -> str | None:
        if isinstance(call.func, ast.Name) and call.func.id in self.classes:
            return self.class_kind(self.classes[call.func.id])
        if (name := self.qualify(call.func)) and (kind := kinds.of_constructor(name)):
            return kind
        inner = self.unwrapped(call)
        return self.kind(inner, depth + 1) if inner is not None else None
