# SPDX-License-Identifier: Apache-2.0
"""Branches that no run in sight takes: what nobody passes keeps its default, and a test of that always ends the same."""

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from truestep.doctor.source.arguments import argument_for, parameter_default
from truestep.doctor.source.constant_evaluation import ExpressionValues
from truestep.doctor.source.frames import TOP, UNKNOWN, LocatedExpression, UnknownValue
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import (
    EXITS,
    Binding,
    Class,
    Function,
    Scope,
    dotted_name,
    given_to,
    is_self,
    walk,
)

_ASKS_ALONE = ("isinstance", "issubclass", "super")  # what is given a class to look at
_MAJOR = ("sys.version_info.major", "six.PY3")
_PLAIN = ("torch.", "staticmethod", "classmethod")
Given = list[ast.expr | None]


class SettledValues(ExpressionValues):
    """The value that an expression has in every run in sight, or of one object, by the calls that made and apply it."""

    def __init__(self, module: SourceModule, calls: Sequence[ast.Call] = ()) -> None:
        super().__init__()
        self.module = module
        self.resolver, self.index = module.resolver, module.resolver.index
        classes, functions = self.resolver.classes, self.resolver.functions
        made = [(call, classes.named(call.func)) for call in calls]
        self._made = [(call, classes.lineage(owner)) for call, owner in made if owner is not None]
        self._applied = {
            functions.target(call) or functions.applied(call): call for call, owner in made if owner is None
        }
        self._asking: set[ast.expr] = set()

    def origin(self, value: LocatedExpression) -> LocatedExpression:
        """Return the value itself: what it stands for may be several."""
        return value

    def slot(self, value: LocatedExpression) -> str:
        """Name nothing: no world chooses a value here."""
        return ""

    def variable(self, value: LocatedExpression) -> str:
        """Name nothing: no world chooses a value here."""
        return ""

    def of(self, node: ast.expr | None) -> Any:
        """Return the value, or UNKNOWN."""
        return UNKNOWN if node is None else self.value(LocatedExpression(node, TOP))

    def holds(self, test: ast.expr) -> Any:
        """Return whether a test holds in every run in sight: True, False, or UNKNOWN."""
        return self.test(LocatedExpression(test, TOP))

    def _value_of_variable(self, value: LocatedExpression) -> Any:
        node = value.node
        if node in self._asking:
            return UNKNOWN
        self._asking.add(node)
        values = [self.of(each) for each in self._possible_values(node)]
        self._asking.discard(node)
        is_one = all(not isinstance(each, UnknownValue) and each == values[0] for each in values)
        return values[0] if values and is_one else UNKNOWN

    def _possible_values(self, node: ast.expr) -> Given:
        match node:
            case ast.Name():
                outside: Given = [None] if self._is_set_from_outside(node.id) else []
                return [*self._values_of_bindings(self.resolver.reaching(node), node.id), *outside]
            case ast.Subscript():  # of tables, whoever has one may change it
                is_major = ast.unparse(node) == "sys.version_info[0]"
                return [ast.Constant(3) if is_major else None]
            case ast.Attribute() if self.module.qualify(node) in _MAJOR:
                return [ast.Constant(3)]
            case ast.Attribute() if (owner := self.resolver.classes.of(node.value)) is not None:
                return self._sources_of_attribute(owner, node.attr)
            case ast.Attribute(value=ast.Name() as held) if not self._is_set_from_outside(node.attr):
                if (value := self._value_written_before(node, held)) is not None:
                    return [value]
            case ast.IfExp():
                holds = self.holds(node.test)
                arms = [node.body, node.orelse]
                return (
                    list(arms) if isinstance(holds, UnknownValue) else [node.body if holds else node.orelse]
                )
            case ast.Call():
                return list(self.resolver.results_of(node))
            case ast.Attribute() if self._is_set_from_outside(node.attr):
                return [None]
        return self.resolver.definitions(node)

    def _is_set_from_outside(self, name: str) -> bool:
        """Tell a name to which another file, or a function by `global`, gives a value: `config.RATE = 0.1`."""
        bases = [base for base, _ in self.index.written.get(name, [])]
        return any(self.resolver.names.module_named(each) is not None for each in bases) or any(
            name in each.declared_outside and name in each.bindings for each in self.index.names.values()
        )

    def _sources_of_attribute(self, owner: Class, name: str) -> Given:
        classes = self.resolver.classes
        bindings = self.resolver.attribute_bindings(owner, name)
        for heir in () if self._made else classes.subclasses_of(owner):
            bindings = [*bindings, *self.index.attributes.get(heir, {}).get(name, [])]
        foreign = [base for base, _ in self.index.written.get(name, []) if not is_self(base)]
        if any(classes.of(each) is None for each in foreign) or self._is_set_by_text(owner, name):
            return [None]
        return (
            [None]
            if any(self.index.is_option(each) for each in bindings)
            else self._values_of_bindings(bindings, name)
        )

    def _value_written_before(self, read: ast.Attribute, held: ast.Name) -> ast.expr | None:
        """Return what a line above has given an attribute, in whatever case: `args.distributed = False`.

        The object is of no class of the program, as options are. Nothing else of the program writes that attribute,
        and nothing out of sight is given the object between.
        """
        written = self.index.written.get(read.attr, [])
        base, binding = written[0] if len(written) == 1 else (None, None)
        if not isinstance(base, ast.Name) or binding is None or binding.how != "assign":
            return None
        line, scope = self.resolver.statement(binding.node), self.index.scope_of[held]
        is_same = base.id == held.id and self.index.scope_of[base] is scope
        block = self.index.parents.get(line)
        if (
            not is_same
            or block not in [*self.module.home(read).ancestors(read)]
            or line.lineno >= read.lineno
        ):
            return None
        between = [
            call
            for call in self.module.home(held).directly_in(scope, ast.Call)
            if line.lineno < call.lineno < read.lineno
            and any(dotted_name(each) == held.id for each in given_to(call))
        ]
        unseen = [each for each in between if self.resolver.functions.target(each) is None]
        rebound = [each for each in self.resolver.reaching(held) if each not in self.resolver.reaching(base)]
        return (
            binding.value
            if not rebound and all(dotted_name(each.func) == "print" for each in unseen)
            else None
        )

    def _is_set_by_text(self, owner: Class, name: str) -> bool:
        """Tell `setattr(self, name, value)` and `self.__dict__.update(options)` of a class, or of an object of it."""
        lineage = self.resolver.classes.lineage(owner)
        for call in self.index.calls.get("setattr", ()):
            held, text = (*call.args[:2], None, None)[:2]
            of_own = held is not None and self._class_of(held) in lineage
            if (of_own and not isinstance(text, ast.Constant)) or getattr(text, "value", None) == name:
                return True
        updates = [each for each in self.index.calls.get("update", ()) if "__dict__" in ast.dump(each.func)]
        return any(self.index.enclosing(each, ast.ClassDef) in lineage for each in updates)

    def _class_of(self, node: ast.expr) -> Class | None:
        return self.index.enclosing(node, ast.ClassDef) if is_self(node) else self.resolver.classes.of(node)

    def _values_of_bindings(self, bindings: list[Binding], name: str) -> Given:
        found: Given = []
        for each in bindings:
            if each.how == "parameter" and each.parameter_of is not None:
                found += self._values_passed(each.parameter_of, name)
            else:
                found.append(each.value if each.how == "assign" else None)
        return found

    def _values_passed(self, function: Function, name: str) -> Given:
        """Return what the calls in sight pass, or the default where there are none; None for what is out of sight."""
        if (applied := self._applied.get(function)) is not None:
            return [argument_for(function, applied, name)]
        calls = self._calls_of_function(function)
        is_open = any(_is_base_call_by_class(each) for each in calls) or self._may_be_called(function)
        if is_open or self._is_handed_on(function):
            return [None]
        return [argument_for(function, each, name) for each in calls] or [parameter_default(function, name)]

    def _calls_of_function(self, function: Function) -> list[ast.Call]:
        functions = self.resolver.functions
        calls = functions.callers(function)
        if getattr(function, "name", "") == "__init__":
            inits = self.index.calls.get("__init__", ())
            calls = [*calls, *(each for each in inits if self._is_base_init_call(each, function))]
        for made, lineage in self._made:
            if self.index.parents.get(function) in lineage:
                of_made = [each for each in calls if self.index.enclosing(each, ast.ClassDef) in lineage]
                return [made] if functions.constructor(made) is function else of_made
        return calls

    def _is_base_init_call(self, init: ast.Call, function: Function) -> bool:
        """Tell `super().__init__(...)` and `Base.__init__(self, ...)` of a method."""
        assert isinstance(init.func, ast.Attribute)
        base = self.resolver.classes.named(init.func.value)
        found = self.resolver.classes.method(base, "__init__") or self.resolver.functions.target(init)
        return found is function

    def _is_handed_on(self, function: Function) -> bool:
        """Tell a function, or a class by its `__init__`, that is given to what calls it out of sight."""
        if isinstance(function, ast.Lambda):
            return True
        owner = self.index.parents.get(function)
        is_made = function.name == "__init__" and isinstance(owner, ast.ClassDef)
        if any(owner in lineage for _, lineage in self._made):
            return False
        meant = owner if isinstance(owner, ast.ClassDef) and is_made else function
        return any(
            self._is_handed_on_at(each) and self._is_meant_by_name(each, meant)
            for file in self.module.program.linked
            for each in file.read_under(meant.name)
        )

    def _may_be_called(self, function: Function) -> bool:
        """Tell what the language, a library or a decorator calls, and a method that is called on nobody knows what."""
        if isinstance(function, ast.Lambda) or function.name == "__init__":
            return isinstance(function, ast.Lambda)
        owner = self.index.parents.get(function)
        made = [each.func if isinstance(each, ast.Call) else each for each in function.decorator_list]
        is_plain = all((self.module.qualify(each) or "").startswith(_PLAIN) for each in made)
        if not is_plain or not isinstance(owner, ast.ClassDef):
            return not is_plain  # a command's options are given where it is started
        if function.name == "forward" or function.name.startswith("__") or self._has_library_base(owner):
            return True
        calls = [each.func for each in self.index.calls.get(function.name, ())]
        held = [each.value for each in calls if isinstance(each, ast.Attribute)]
        return any(self._is_of_unknown_class(each) for each in held)

    def _has_library_base(self, owner: Class) -> bool:
        """Tell a class whose base is out of sight, which may call its methods; modules of torch do so with few."""
        return bool(
            self.resolver.classes.bases_out_of_sight(owner) - {"torch.nn.Module", "object", "abc.ABC"}
        )

    def _is_of_unknown_class(self, held: ast.expr) -> bool:
        is_known = self.resolver.classes.of(held) or self.resolver.classes.named(held)
        return is_known is None and self.module.kind(held) is None and not self.module.qualify(held)

    def _is_meant_by_name(self, name: ast.expr, meant: Scope | Class) -> bool:
        if isinstance(name, ast.Attribute) and isinstance(
            owner := self.index.parents.get(meant), ast.ClassDef
        ):
            held = self.resolver.classes.of(name.value)
            return held in (None, owner) or owner in self.resolver.classes.lineage(held)
        return self.resolver.classes.named(name) is meant or self.resolver.functions.named(name) is meant

    def _is_handed_on_at(self, name: ast.expr) -> bool:
        parent = self.index.parents.get(name)
        if isinstance(parent, (ast.ClassDef, ast.arg, ast.AnnAssign, ast.FunctionDef, ast.Attribute)):
            return False  # a base, a type, a decorator, a part of it
        is_asked = isinstance(parent, ast.Call) and self.module.qualify(parent.func) in _ASKS_ALONE
        return not is_asked and not self.index.is_called(name)


def is_never_taken(module: SourceModule, node: ast.AST) -> bool:
    """Tell whether a node stands in a branch that no run in sight takes."""
    return is_taken(module, node, SettledValues(module)) is False


def is_taken(module: SourceModule, node: ast.AST, values: SettledValues) -> bool | None:
    """Tell whether runs come by a node: False where none does, None where a test of what can't be seen decides.

    A loop's own variable, and the mode, come by every way.
    """
    below, taken = node, True
    for above in module.ancestors(node):
        for test, way in tests_that_skip(above, below):
            holds = values.holds(test)
            if holds is way:
                return False
            taken = taken and not (isinstance(holds, UnknownValue) and _is_test_of_options(module, test))
        below = above
    return True if taken else None


def _is_test_of_options(module: SourceModule, test: ast.expr) -> bool:
    """Tell a test of options alone from one of the mode, or of what a loop counts."""
    names = [each for each in walk(test) if isinstance(each, ast.Name)]
    looped = any(each.how == "for" for name in names for each in module.names.bindings(name))
    return not looped and "self.training" not in ast.unparse(test)


def tests_that_skip(above: ast.AST, below: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """Yield the tests, and how they end, with which a part of a node is not reached."""
    match above:
        case ast.IfExp() if below is not above.test:
            yield above.test, below is above.orelse
        case ast.If() | ast.While() if below in above.body:
            yield above.test, False
        case ast.If() if below in above.orelse:
            yield above.test, True
        case ast.BoolOp():
            before = above.values[: above.values.index(below)]  # type: ignore[arg-type]
            yield from ((each, isinstance(above.op, ast.Or)) for each in before)
    for name in ("body", "orelse", "finalbody"):
        block = getattr(above, name, None)
        if isinstance(block, list) and below in block:
            for each in block[: block.index(below)]:
                if isinstance(each, ast.If):
                    yield from ((each.test, way) for way in (True, False) if _ends_block(each, way))


def _ends_block(choice: ast.If, way: bool) -> bool:
    """Tell whether an arm of an `if` ends what stands around it."""
    arm = choice.body if way else choice.orelse
    return bool(arm) and isinstance(arm[-1], EXITS)


def _is_base_call_by_class(call: ast.Call) -> bool:
    """Tell `Base.__init__(self, rate)`, where the arguments stand a place later."""
    is_init = isinstance(call.func, ast.Attribute) and call.func.attr == "__init__"
    return is_init and not isinstance(call.func.value, ast.Call)  # type: ignore[attr-defined]
