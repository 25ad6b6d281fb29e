# SPDX-License-Identifier: Apache-2.0
"""Where values come from, one step back, and which class of the program made an object."""

import ast
from collections.abc import Iterator
from typing import Any

from truestep.doctor.library.functions import functions
from truestep.doctor.source import kinds
from truestep.doctor.source.arguments import argument_for
from truestep.doctor.source.linking import FindModule, SourceLinker, Variable
from truestep.doctor.source.names import Binding, Class, Function, Index, Scope, dotted, is_none
from truestep.doctor.source.reaching import ReachingBindings

MAX_NAMES = 4  # from a name of a function back to the function
_MOVES = {
    "to", "cuda", "cpu", "double", "float", "half", "bfloat16", "train", "eval", "requires_grad_"
}  # fmt: skip
Place = ast.AST | Variable
MAX_DEPTH = 8  # how many assignments and calls a value is followed through


class Resolver:
    """Answers, for every node of an index, what an expression may stand for."""

    def __init__(self, index: Index, find_module: FindModule) -> None:
        self.index = index
        self.linker = SourceLinker(index, find_module)
        self._definitions: dict[Place, list[ast.expr | None]] = {}
        self._classes_of: dict[Place, Class | None] = {}
        self._blind: tuple[dict[Place, list[ast.expr | None]], dict[Place, Class | None]] = ({}, {})
        self._callers: dict[Function, list[ast.Call]] = {}
        self._lineages: dict[Class, list[Class]] = {}
        self._heirs: dict[Class, list[Class]] | None = None
        self._sees_callers = True
        self._returns: dict[Scope, list[ast.Return]] = {}
        self._bindings_at = ReachingBindings(index, self.linker)
        self.remembered: dict[tuple[object, ...], Any] = {}  # what questions with many ways to an answer gave
        self.guessed: set[Place] = set()  # of these, only the name tells the kind
        self.kinds: dict[Place, str | None] = {}

    def noted_returns(self, returns: list[ast.AST]) -> None:
        """Take the return statements of one more file."""
        for node in returns:
            if isinstance(node, ast.Return):
                self._returns.setdefault(self.index.scope_of[node], []).append(node)

    def returns(self, function: Function) -> list[ast.Return]:
        """Return the statements that return a value from a function."""
        return [node for node in self._returns.get(function, []) if node.value is not None]

    # ── definitions ───────────────────────────────────────────────────────────────────────────

    def definitions(self, node: ast.expr) -> list[ast.expr | None]:
        """Return the expressions this one may stand for, one step back; None stands for "not known"."""
        known = self._definitions.get(node)
        if known is not None:
            return known
        place = self.place(node)
        if place not in self._definitions:
            self._definitions[place] = []  # a cycle ends here
            self._definitions[place] = self._definitions[node] = self._define(node)
        return self._definitions[place]

    def place(self, node: ast.expr) -> Place:
        """Return what to remember an answer by: the variable, where it has one value wherever it is read; else the node."""
        if type(node) is not ast.Name or node.id == "self":
            return node
        variable = self.linker.variable(node)
        is_same = variable[0] is not self.index.scope_of[node] or len(self.linker.local_bindings(node)) < 2
        return variable if is_same else node

    def _define(self, node: ast.expr) -> list[ast.expr | None]:
        match node:
            case ast.Name():
                return self._from_bindings(self.reaching(node), node.id)
            case ast.Attribute():
                return self._of_attribute(node)
            case ast.Subscript(slice=ast.Constant()):
                return self._of_item(node)
            case ast.IfExp():
                return [node.body, node.orelse]
            case ast.NamedExpr():
                return [node.value]
            case ast.BoolOp(op=ast.Or()):
                return list(node.values)
        return []

    def _of_attribute(self, node: ast.Attribute) -> list[ast.expr | None]:
        if node.attr not in self.index.held:
            return self._of_namespace(node)
        if (owner := self.class_of(node.value)) is not None:
            bindings = self.attribute_bindings(owner, node.attr)
            options = [None] if any(self.index.is_option(each) for each in bindings) else []
            return [*self._from_bindings(bindings, node.attr), *options]
        tree = self.linker.module_named(node.value)
        if tree is not None:
            return self._from_bindings(self.linker.exported(tree, node.attr), node.attr)
        return self._of_namespace(node)

    def attribute_bindings(self, owner: Class, name: str) -> list[Binding]:
        """Return what `self.NAME` is bound to, in the class, in its bases, and from outside."""
        found: list[Binding] = []
        for each in self.lineage(owner):
            found = found or self.index.attributes.get(each, {}).get(name, [])
        outside = [
            binding
            for base, binding in self.index.written.get(name, [])
            if not (isinstance(base, ast.Name) and base.id == "self") and self.class_of(base) is owner
        ]
        return [*found, *outside] if outside else found

    def _of_namespace(self, node: ast.Attribute) -> list[ast.expr | None]:
        """`SimpleNamespace(opt=opt).opt`."""
        for value in self.definitions(node.value) if isinstance(node.value, ast.Name) else ():
            if isinstance(value, ast.Call) and (self.linker.qualify(value.func) or "").endswith(
                "SimpleNamespace"
            ):
                return [word.value for word in value.keywords if word.arg == node.attr]
        return []

    def _of_item(self, node: ast.Subscript) -> list[ast.expr | None]:
        """Return what stands at a constant place of a dict, tuple or list that is written out."""
        assert isinstance(node.slice, ast.Constant)
        base = dotted(node.value)
        if base is None:
            return []
        found: list[ast.expr | None] = []
        for value in self.definitions(node.value):
            if value is None or (part := self.part_of(value, node.slice.value)) is None:
                continue
            found += part
        scope = self.index.scope_of[node]
        written = [
            value
            for target, key, value in self.index.items.get(scope, [])
            if key == node.slice.value and dotted(target) == base and value.lineno < node.lineno
        ]
        return [*found, *written] if len(found) + len(written) > 0 else []

    def part_of(self, value: ast.expr, key: object) -> list[ast.expr | None] | None:
        """Return what stands at a key of a display or of what a function returns; None where that can't be told."""
        if isinstance(value, ast.Dict):
            keys = [each.value if isinstance(each, ast.Constant) else None for each in value.keys]
            return [part for name, part in zip(keys, value.values, strict=True) if name == key]
        if isinstance(value, ast.Tuple | ast.List) and isinstance(key, int):
            whole = not any(isinstance(each, ast.Starred) for each in value.elts)
            return [value.elts[key]] if whole and -len(value.elts) <= key < len(value.elts) else None
        if isinstance(value, ast.Call):
            if isinstance(value.func, ast.Name) and value.func.id == "dict":
                return [word.value for word in value.keywords if word.arg == key]
            return self._part_of_result(value, key)
        return None

    def _part_of_result(self, call: ast.Call, key: object) -> list[ast.expr | None] | None:
        function = self.target(call)
        parts: list[ast.expr | None] = []
        for given in self.results(function) if function is not None else ():
            part = self.part_of(given, key) if isinstance(given, ast.Tuple | ast.List | ast.Dict) else None
            if part is None:
                return None
            parts += part
        return parts or None

    def results(self, function: Function) -> list[ast.expr]:
        """Return the expressions whose value a function gives back."""
        if isinstance(function, ast.Lambda):
            return [function.body]
        return [node.value for node in self.returns(function) if node.value is not None]

    def unpacked(self, name: ast.Name) -> list[tuple[ast.expr, tuple[int, ...]]] | None:
        """Return (value, place in it) for each unpacking that gives a name its value, if nothing else does."""
        bindings = self.reaching(name)
        found = [(each.value, each.position) for each in bindings if each.how == "unpack"]
        known = [(value, position) for value, position in found if value is not None]
        return known if known and len(known) == len(bindings) else None

    def _from_bindings(self, bindings: list[Binding], name: str) -> list[ast.expr | None]:
        found: list[ast.expr | None] = []
        for binding in bindings:
            if binding.how in ("assign", "augmented"):
                found += self._made_by(binding.value)
            elif binding.how == "parameter" and binding.parameter_of is not None:
                found += self._arguments(binding.parameter_of, name)
            elif binding.how == "unpack" and binding.value is not None:
                found += self._unpacked_part(binding.value, binding.position)
            else:
                found.append(None)
        return found

    def _made_by(self, value: ast.expr | None) -> list[ast.expr | None]:
        """Return what a call of a function of the program gives back, if that is made there; else the value itself."""
        function = self.target(value) if isinstance(value, ast.Call) else None
        if function is None or self.index.scope_of.get(value) is function:  # type: ignore[arg-type]
            return [value]
        given = self.results(function)
        made = [each for each in given if isinstance(each, ast.Call | ast.Constant)]
        return (
            list(made)
            if made and len(made) == len(given) and not self._is_recursive(made, function)
            else [value]
        )

    def _is_recursive(self, made: list[ast.Call | ast.Constant], function: Function) -> bool:
        return any(isinstance(each, ast.Call) and self.target(each) is function for each in made)

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

    # ── functions and their callers ───────────────────────────────────────────────────────────

    def _arguments(self, function: Function, name: str) -> list[ast.expr | None]:
        """Return what the calls in the program give for a parameter."""
        if not self._sees_callers:
            return [None]
        found = [argument_for(function, call, name) for call in self.callers(function)]
        return found or [None]

    def callers(self, function: Function) -> list[ast.Call]:
        """Return the calls in the program that run a function."""
        if function not in self._callers:
            self._callers[function] = []
            remembered = self._definitions, self._classes_of
            # who calls is asked without knowing what parameters are: else the question would have no end
            (self._definitions, self._classes_of), self._sees_callers = self._blind, False
            found = [call for call in self._candidates(function) if self._runs(call, function)]
            (self._definitions, self._classes_of), self._sees_callers = remembered, True
            self._callers[function] = found
        return self._callers[function]

    def _runs(self, call: ast.Call, function: Function) -> bool:
        return (self.target(call) or self.constructor(call)) is function

    def _candidates(self, function: Function) -> Iterator[ast.Call]:
        """Yield the calls of anything that has the name of a function, of its class, or of an alias of it."""
        if isinstance(function, ast.Lambda):
            parent = self.index.parents.get(function)
            targets = parent.targets if isinstance(parent, ast.Assign) else []
            names = {each.id for each in targets if isinstance(each, ast.Name)}
        else:
            names = {function.name}
            owner = self.index.parents.get(function)
            if function.name == "__init__" and isinstance(owner, ast.ClassDef):
                names = {owner.name, *(each.name for each in self.heirs(owner))}
        for name in names:
            yield from self.index.calls.get(name, [])

    def heirs(self, owner: Class) -> list[Class]:
        """Return the classes of the program that are made from this one."""
        if self._heirs is None:
            self._heirs = {}
            for each in list(self.index.attributes):
                for base in self.lineage(each)[1:]:
                    self._heirs.setdefault(base, []).append(each)
        return self._heirs.get(owner, [])

    def target(self, call: ast.Call) -> Function | None:
        """Return the function or method of the program that a call runs, if exactly one can be meant."""
        if (found := self.function_named(call.func)) is not None:
            return found
        if isinstance(call.func, ast.Attribute) and call.func.attr in self.index.held:
            owner = self.class_of(call.func.value)
            if owner is not None and (method := self.method(owner, call.func.attr)) is not None:
                return method
        return self._kept(call.func) or self._of_object(call.func)

    def _of_object(self, name: ast.expr) -> Function | None:
        """Return the `__call__` of an object of the program that is called."""
        if "__call__" not in self.index.held or not isinstance(name, ast.Name | ast.Attribute):
            return None
        owner = self.class_of(name)
        return self.method(owner, "__call__") if owner is not None else None

    def _kept(self, name: ast.expr, depth: int = 0) -> Function | None:
        """Return the function that a variable or an attribute was given: `self.loss = loss`, `value = Objective(net).value`."""
        made = self.definitions(name) if isinstance(name, ast.Name | ast.Attribute) else []
        value = made[0] if len(made) == 1 else None
        value = self._cast_within(value) or value
        if isinstance(value, ast.Name):
            behind = self._kept(value, depth + 1) if depth < MAX_NAMES else None
            return self.function_named(value) or behind or self._of_object(value)
        if isinstance(value, ast.Attribute) and value.attr in self.index.held:
            owner = self.class_of(value.value)
            return self.method(owner, value.attr) if owner is not None else None
        return None

    def _cast_within(self, value: ast.expr | None) -> ast.expr | None:
        """Return f of `torch.autocast("cuda")(f)`."""
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Call) or len(value.args) != 1:
            return None
        casts = self.linker.qualify(value.func.func) in functions("casts within")
        return value.args[0] if casts else None

    def constructor(self, call: ast.Call) -> Function | None:
        """Return the `__init__` that a call of a class of the program runs."""
        owner = self.class_named(call.func)
        return self.method(owner, "__init__") if owner is not None else None

    def function_named(self, name: ast.expr) -> Function | None:
        """Return the function of the program that a name stands for."""
        if isinstance(name, ast.Lambda):
            return name
        found: object = self.linker.defined(name) if isinstance(name, ast.Name | ast.Attribute) else None
        if found is None and isinstance(name, ast.Name) and name in self.index.scope_of:
            found = self._in_force(name)
        return found if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef) else None

    def _in_force(self, name: ast.Name) -> ast.AST | None:
        """Return the one definition that a name has where it is read, of several of that name: each loop's own `closure`."""
        reaching = self.reaching(name)
        return reaching[0].node if len(reaching) == 1 else None

    # ── classes ───────────────────────────────────────────────────────────────────────────────

    def method(self, owner: Class, name: str) -> Function | None:
        """Return the method of a class of the program, or of its bases in it."""
        for each in self.lineage(owner):
            for binding in reversed(self.index.attributes.get(each, {}).get(name, [])):
                if isinstance(binding.node, ast.FunctionDef | ast.AsyncFunctionDef):
                    return binding.node
        return None

    def class_named(self, node: ast.expr) -> Class | None:
        """Return the class of the program that a name stands for."""
        found = self.linker.defined(node)
        return found if isinstance(found, ast.ClassDef) else None

    def has_class(self, name: str) -> bool:
        """Tell whether any file of the program defines a class of this name."""
        return any(each.name == name for each in self.index.attributes)

    def lineage(self, owner: Class) -> list[Class]:
        """Return a class and its bases in the program, nearest first."""
        if owner not in self._lineages:
            self._lineages[owner] = self._lineage(owner)
        return self._lineages[owner]

    def _lineage(self, owner: Class) -> list[Class]:
        found: list[Class] = []
        waiting = [owner]
        while waiting and len(found) < MAX_DEPTH:
            current = waiting.pop(0)
            if current not in found:
                found.append(current)
                bases = [self.class_named(base) for base in current.bases]
                waiting += [base for base in bases if base is not None]
        return found

    def class_of(self, node: ast.expr) -> Class | None:
        """Return the class of the program that an expression is an instance of."""
        if node in self._classes_of:
            return self._classes_of[node]
        place = self.place(node)
        if place not in self._classes_of:
            self._classes_of[place] = None  # a cycle ends here
            self._classes_of[place] = self._classes_of[node] = self._class_of(node)
        return self._classes_of[place]

    def _class_of(self, node: ast.expr) -> Class | None:
        if isinstance(node, ast.Name) and node.id == "self":
            return self.index.enclosing(node, ast.ClassDef)
        if isinstance(node, ast.Call):
            return self._class_of_call(node)
        known = [each for each in self.definitions(node) if not is_none(each)]
        found = {self.class_of(each) if each is not None else None for each in known}
        if len(found) == 1 and (only := found.pop()) is not None:
            return only
        hint = self.annotation(node) if isinstance(node, ast.Name) else None
        return self.class_named(hint) if hint is not None else None

    def annotation(self, name: ast.Name) -> ast.expr | None:
        """Return the type that a parameter is declared to have."""
        bindings = self.linker.bindings(name)
        if len(bindings) == 1 and isinstance(bindings[0].node, ast.arg):
            return bindings[0].node.annotation
        return None

    def _class_of_call(self, call: ast.Call) -> Class | None:
        if (made := self.class_named(call.func)) is not None:
            return made
        if isinstance(call.func, ast.Name) and call.func.id == "super":
            owner = self.index.enclosing(call, ast.ClassDef)
            above = self.lineage(owner)[1:] if owner is not None else []
            return above[0] if above else None
        if (inner := self.unwrapped(call)) is not None:
            return self.class_of(inner)
        function = self.target(call)
        given = self.results(function) if function is not None else []
        classes = {self.class_of(each) for each in given}
        return classes.pop() if len(classes) == 1 else None

    def behind(self, made: Class, call: ast.Call) -> ast.expr | None:
        """Return what an object passes its attributes on to by `__getattr__`: the one thing that it is given, or makes later."""
        if self.method(made, "__getattr__") is None or len(call.args) != 1:
            return None
        return call.args[0].body if isinstance(call.args[0], ast.Lambda) else call.args[0]

    def unwrapped(self, call: ast.Call) -> ast.expr | None:
        """Return x for `x.to(...)`, `x.cuda()`, `DDP(x)`, `torch.compile(x)`: the same module, elsewhere."""
        name = self.linker.qualify(call.func) or ""
        if name in kinds.SAME_MODULE or name.startswith("torch.nn.parallel."):
            return call.args[0] if call.args else None
        if not isinstance(call.func, ast.Attribute):
            return None
        return call.func.value if call.func.attr in _MOVES else self.handled(call)

    def handled(self, call: ast.Call) -> ast.expr | None:
        """Return the module of which `run.learner(module, ...)` makes a handle."""
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if method not in kinds.HANDLES or not isinstance(call.func, ast.Attribute):
            return None
        maker, named = kinds.HANDLES[method]
        if self.maker_of(call) != maker:
            return None
        given = [word.value for word in call.keywords if word.arg == named]
        return [*call.args[:1], *given, None][0]

    def maker_of(self, call: ast.Call) -> str | None:
        """Return the full name of what made the object whose method is called, be it in `with ... as name`."""
        if not isinstance(call.func, ast.Attribute):
            return None
        node = call.func.value
        values = self.definitions(node)
        if isinstance(node, ast.Name):
            values = [*values, *(each.value for each in self.reaching(node) if each.how == "with")]
        found = {self.linker.qualify(each.func) for each in values if isinstance(each, ast.Call)}
        return found.pop() if len(found) == 1 else None
