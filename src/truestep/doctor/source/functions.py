# SPDX-License-Identifier: Apache-2.0
"""The functions of a program: which one a call runs, what calls it, and what it gives back."""

import ast
from collections.abc import Iterator

from truestep.doctor.library.functions import functions
from truestep.doctor.source.classes import ProgramClasses, Values
from truestep.doctor.source.linking import SourceLinker
from truestep.doctor.source.names import Function, Index, Scope, last_part

MAX_NAMES = 4  # from a name of a function back to the function


class ProgramFunctions:
    """Answers, for every node of an index, which function of the program is meant."""

    def __init__(self, index: Index, names: SourceLinker, classes: ProgramClasses, values: Values) -> None:
        self.index = index
        self._names = names
        self._classes = classes
        self._values = values
        self._callers: dict[Function, list[ast.Call]] = {}
        self._returns: dict[Scope, list[ast.Return]] = {}
        self._targets: dict[ast.Call, Function | None] = {}

    def add_return_statements(self, returns: list[ast.AST]) -> None:
        """Take the return statements of one more file."""
        for node in returns:
            if isinstance(node, ast.Return):
                self._returns.setdefault(self.index.scope_of[node], []).append(node)

    def returns(self, function: Function) -> list[ast.Return]:
        """Return the statements that return a value from a function."""
        return [node for node in self._returns.get(function, []) if node.value is not None]

    def results(self, function: Function | None) -> list[ast.expr]:
        """Return the expressions whose value a function gives back; none where no function is known."""
        if function is None:
            return []
        if isinstance(function, ast.Lambda):
            return [function.body]
        return [node.value for node in self.returns(function) if node.value is not None]

    def callers(self, function: Function) -> list[ast.Call]:
        """Return the calls in the program that run a function."""
        if function not in self._callers:
            self._callers[function] = []
            # who calls is asked without knowing what parameters are: else the question would have no end
            with self._values.without_callers():
                found = [call for call in self._candidate_calls(function) if self._is_call_of(call, function)]
            self._callers[function] = found
        return self._callers[function]

    def _is_call_of(self, call: ast.Call, function: Function) -> bool:
        return (self.target_within(call) or self.constructor(call)) is function

    def _candidate_calls(self, function: Function) -> Iterator[ast.Call]:
        """Yield the calls of anything that has the name of a function, of its class, or of an alias of it."""
        if isinstance(function, ast.Lambda):
            parent = self.index.parents.get(function)
            targets = parent.targets if isinstance(parent, ast.Assign) else []
            names = {each.id for each in targets if isinstance(each, ast.Name)}
        else:
            names = {function.name}
            owner = self.index.parents.get(function)
            if function.name in ("__init__", "__call__") and isinstance(owner, ast.ClassDef):
                names = {owner.name, *(each.name for each in self._classes.subclasses_of(owner))}
            if function.name == "__call__":
                names = {last_part(target) for name in names for target in self._names_kept_under(name)}
        for name in names:
            yield from self.index.calls.get(name, [])

    def _names_kept_under(self, name: str) -> Iterator[ast.expr]:
        """Yield what objects of a class are kept under: `self.stop = Stop()`."""
        for call in self.index.calls.get(name, []):
            parent = self.index.parents.get(call)
            if isinstance(parent, ast.Assign):
                yield from parent.targets

    def target(self, call: ast.Call) -> Function | None:
        """Return the function or method of the program that a call runs, if exactly one can be meant."""
        if call not in self._targets:
            self._targets[call] = self.target_within(call)
        return self._targets[call]

    def target_within(self, call: ast.Call) -> Function | None:
        """Return the same where another question is not answered yet: it is not remembered, since a cycle may end in it."""
        if (found := self.named(call.func)) is not None:
            return found
        if isinstance(call.func, ast.Attribute) and call.func.attr in self.index.held:
            owner = self._classes.of(call.func.value)
            if owner is not None and (method := self._classes.method(owner, call.func.attr)) is not None:
                return method
        return self.kept(call.func) or self._call_method_of_object(call.func)

    def _call_method_of_object(self, name: ast.expr) -> Function | None:
        """Return the `__call__` of an object of the program that is called."""
        if "__call__" not in self.index.held or not isinstance(name, (ast.Name, ast.Attribute)):
            return None
        return self._classes.method(self._classes.of(name), "__call__")

    def kept(self, name: ast.expr, depth: int = 0) -> Function | None:
        """Return the function that a variable or an attribute was given: `self.loss = loss`, `value = Objective(net).value`."""
        made = self._values.definitions(name) if isinstance(name, (ast.Name, ast.Attribute)) else []
        value = made[0] if len(made) == 1 else None
        value = self._function_in_autocast(value) or value
        if isinstance(value, ast.Name):
            return (
                self.named(value)
                or self._function_kept_deeper(value, depth)
                or self._call_method_of_object(value)
            )
        if isinstance(value, ast.Attribute):
            held = value.attr in self.index.held
            method = self._classes.method(self._classes.of(value.value), value.attr) if held else None
            return method or self._function_kept_deeper(value, depth)
        return None

    def _function_kept_deeper(self, name: ast.expr, depth: int) -> Function | None:
        return self.kept(name, depth + 1) if depth < MAX_NAMES else None

    def _function_in_autocast(self, value: ast.expr | None) -> ast.expr | None:
        """Return f of `torch.autocast("cuda")(f)`."""
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Call) or len(value.args) != 1:
            return None
        casts = self._names.qualify(value.func.func) in functions("casts within")
        return value.args[0] if casts else None

    def constructor(self, call: ast.Call) -> Function | None:
        """Return the `__init__` that a call of a class of the program runs."""
        owner = self._classes.named(call.func)
        return self._classes.method(owner, "__init__")

    def called(self, call: ast.Call) -> Function | None:
        """Return the function, method or constructor of the program that a call runs."""
        return self.constructor(call) or self.target(call)

    def applied(self, call: ast.Call) -> Function | None:
        """Return the forward of the object that a call applies, else the function or method that it runs."""
        return self._classes.method(self._classes.of(call.func), "forward") or self.target(call)

    def all_called(self, call: ast.Call) -> list[Function]:
        """Return what of the program a call may run: a function, a method, a constructor, a forward."""
        found = dict.fromkeys((self.called(call), self.applied(call)))
        return [each for each in found if each is not None]

    def named(self, name: ast.expr) -> Function | None:
        """Return the function of the program that a name stands for."""
        if isinstance(name, ast.Lambda):
            return name
        found: object = self._names.defined(name) if isinstance(name, (ast.Name, ast.Attribute)) else None
        if found is None and isinstance(name, ast.Name) and name in self.index.scope_of:
            found = self._definition_in_force(name)
        is_function = isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef))
        return None if not is_function or self._is_import_in_force(name) else found  # type: ignore[return-value]

    def _is_import_in_force(self, name: ast.expr) -> bool:
        """Tell whether an import alone gives a name its value where it is read, and a function of that name stands elsewhere."""
        if not isinstance(name, ast.Name) or name not in self.index.scope_of:
            return False
        bindings = self._names.local_bindings(name)
        if len({each.how for each in bindings}) < 2 or all(each.how != "import" for each in bindings):
            return False
        reaching = self._values.reaching(name)
        return bool(reaching) and all(each.how == "import" for each in reaching)

    def _definition_in_force(self, name: ast.Name) -> ast.AST | None:
        """Return the one definition that a name has where it is read, of several of that name: each loop's own `closure`."""
        reaching = self._values.reaching(name)
        return reaching[0].node if len(reaching) == 1 else None
