# SPDX-License-Identifier: Apache-2.0
"""A Python file as the checks see it: calls by their full name, and where values come from."""

import ast
from collections.abc import Callable, Iterator
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from truestep.doctor.replacement import source_lines
from truestep.doctor.source import kinds, questions
from truestep.doctor.source.apart import parsed_apart
from truestep.doctor.source.arguments import argument_for
from truestep.doctor.source.averagers import reads_no_gradient
from truestep.doctor.source.items import items_gone_through
from truestep.doctor.source.names import (
    Binding,
    Class,
    Function,
    Index,
    Node,
    Scope,
    SourceBinder,
    dotted,
    is_none,
)
from truestep.doctor.source.resolving import MAX_DEPTH, Resolver
from truestep.doctor.source.settings import is_setting

if TYPE_CHECKING:
    from truestep.doctor.source.events import Trace

_NUMBER = attrgetter("number")  # of a node, in the order of the file
Answer = TypeVar("Answer")


class SourceModule:
    """One parsed file."""

    def __init__(
        self,
        text: str,
        path: str = "<text>",
        resolver: Resolver | None = None,
        follower: "questions.Follower | None" = None,
    ) -> None:
        self.path = path
        self.text = text
        self.lines = source_lines(text)
        self.tree = parsed_apart(text, path)
        self.resolver = resolver or Resolver(Index(), lambda *_: None)
        self.index = self.resolver.index
        self._binder = SourceBinder(self.tree, self.index)
        self.resolver.noted_returns(self._binder.nodes.get(ast.Return, []))
        self.parents = self.index.parents
        self.remembered = self.resolver.remembered
        self.shown: set[ast.stmt] = set()  # expressions that a notebook shows: the last of their cells
        self.was_followed = False  # whether anyone asked for the order of calls
        self._follower = follower
        self._in_scopes: dict[type[ast.AST], dict[Scope, list[ast.AST]]] = {}

    # ── looking around ────────────────────────────────────────────────────────────────────────

    def all(self, *types: type[Node]) -> list[Node]:
        """Return every node of these types, in the order of the file."""
        found = [node for kind in types for node in self._binder.nodes.get(kind, [])]
        if len(types) > 1:
            found.sort(key=_NUMBER)
        return found  # type: ignore[return-value]

    def inside(self, node: ast.AST, *types: type[Node]) -> list[Node]:
        """Return every node of these types from a node of the program on down, in their order."""
        binder = self.home(node)._binder
        if len(types) == 1:
            return binder.inside(node, types[0])
        found = [each for kind in types for each in binder.inside(node, kind)]
        return sorted(found, key=_NUMBER)

    def directly_in(self, scope: Scope, kind: type[Node]) -> list[Node]:
        """Return the nodes of a type in a function, not in one inside of it, or outside of all functions of the file."""
        if kind not in self._in_scopes:
            self._in_scopes[kind] = questions.by_scope(self._binder.nodes.get(kind, []), self.index.scope_of)
        return self._in_scopes[kind].get(scope, [])  # type: ignore[return-value]

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what encloses the node, innermost first."""
        return self.index.ancestors(node)

    def enclosing(self, node: ast.AST, *types: type[Node]) -> Node | None:
        """Return the innermost enclosing node of these types."""
        return self.index.enclosing(node, *types)

    def loop(self, node: ast.AST) -> ast.For | ast.While | None:
        """Return the innermost loop around a node, in whatever function that stands."""
        found = self.enclosing(node, ast.For, ast.While)
        return found if isinstance(found, ast.For | ast.While) else None

    @cached_property
    def _read(self) -> dict[str, list[ast.Name | ast.Attribute]]:
        """Where names and attributes are read, by their last part, in the order of the file."""
        return questions.reads_in(self.all(ast.Name), self.all(ast.Attribute))

    def reads(self, name: str) -> list[ast.expr]:
        """Return every place that reads a name or a chain of attributes (`self.opt`)."""
        return [node for node in self._read.get(name.rpartition(".")[2], ()) if dotted(node) == name]

    def read_under(self, name: str) -> list[ast.Name | ast.Attribute]:
        """Return every place that reads a name, or an attribute of that name of whatever object."""
        return self._read.get(name, [])

    def scope(self, node: ast.AST) -> Scope:
        """Return the function or module in whose body the node stands."""
        return self.index.scope_of[node]

    def statement(self, node: ast.AST) -> ast.stmt:
        """Return the statement that the node is part of."""
        return self.resolver.statement(node)

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Every named function and method."""
        return self.all(ast.FunctionDef, ast.AsyncFunctionDef)

    @cached_property
    def stores(self) -> list[ast.Assign | ast.AugAssign]:
        """Every assignment, and every `x += y`."""
        return [*self.all(ast.Assign), *self.all(ast.AugAssign)]

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
        return questions.methods_in(self.all(ast.Call))

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
    def linked(self) -> "list[SourceModule]":
        """This file and all that it is connected with by imports: what none of them holds is nowhere in the program."""
        return self._follower.linked_with(self) if self._follower is not None else [self]

    @cached_property
    def _answers(self) -> dict[object, Any]:
        """What was answered about the whole program: one table for all its files."""
        return self.linked[0]._answers if self.linked[0] is not self else {}

    def of_program(self, question: "Callable[[list[SourceModule]], Answer]") -> Answer:
        """Return what a question about all files gives: it is answered once, however many files ask it."""
        if question not in self._answers:
            self._answers[question] = question(self.linked)
        answer: Answer = self._answers[question]
        return answer

    def called_anywhere(self, *names: str) -> list[ast.Call]:
        """Return the calls in the program of methods of these names, or of functions whose full name is given."""
        if names not in self._answers:
            methods = [call for each in self.linked for call in each.method_calls(*names)]
            self._answers[names] = methods + [call for each in self.linked for call in each.calls(*names)]
        found: list[ast.Call] = self._answers[names]
        return found

    @cached_property
    def own_identifiers(self) -> set[str]:
        """Every name, attribute and keyword that this file uses; imports alone don't count."""
        names = {node.id for node in self.all(ast.Name)} | {node.attr for node in self.all(ast.Attribute)}
        return names | {node.arg for node in self.all(ast.keyword) if node.arg}

    @cached_property
    def is_of_other_framework(self) -> bool:
        """Whether this file trains with another framework than torch: then no name means one of torch's objects."""
        homes = {each.partition(".")[0] for each in self.imported_names}
        return bool(homes & kinds.FRAMEWORKS) and "torch" not in homes

    @cached_property
    def imported_names(self) -> set[str]:
        """The full names of what this file imports from elsewhere."""
        return questions.imported_by(self.all(ast.Import), self.all(ast.ImportFrom))

    @property
    def identifiers(self) -> set[str]:
        """Every name, attribute and keyword that the program uses."""
        return self.of_program(questions.identifiers_of)

    @property
    def texts(self) -> set[str]:
        """Every text that stands written in the program."""
        return self.of_program(questions.texts_of)

    @property
    def attributes_read(self) -> dict[str, list[ast.Attribute]]:
        """Where the program reads an attribute of whatever object, by the attribute's name."""
        return self.of_program(questions.attributes_read_of)

    @property
    def traces(self) -> "list[Trace]":
        """What happens in which order, from each place where this file can be entered."""
        self.was_followed = True
        return [each for each in self.followed if each.complete]

    @cached_property
    def followed(self) -> "list[Trace]":
        """The traces, and those that had to be cut: what would come last in them is not known."""
        return self._follower.traces_of(self) if self._follower is not None else []

    def traces_through(self, node: ast.AST) -> "Iterator[Trace]":
        """Yield what happens on each way that comes by a node, from whatever file."""
        found = self._follower.traces_through(node) if self._follower is not None else ()
        return (each for each in found if each.complete)

    def training_loops(self) -> set[ast.AST]:
        """Return the loops of the program in which an optimizer steps, be it in a function that is called."""
        return self._follower.training_loops() if self._follower is not None else set()

    def home(self, node: ast.AST) -> "SourceModule":
        """Return the file of the program that a node stands in."""
        known = node in self.index.scope_of and self._follower is not None
        return self._follower.module_of(node) if known and self._follower else self

    def entered_by(self, call: ast.AST) -> set[Function]:
        """Return the functions that a call was followed into."""
        return self._follower.entered_by(call) if self._follower is not None else set()

    def entered_from(self, function: Function) -> set[ast.AST]:
        """Return the calls from which a function was followed."""
        return self._follower.entered_from(function) if self._follower is not None else set()

    def words_of_program(self, words: frozenset[str]) -> frozenset[str]:
        """Return those of some words that stand somewhere in the program; it is searched once for them."""
        if words not in self._answers:
            self._answers[words] = questions.words_in(self.linked, words)
        found: frozenset[str] = self._answers[words]
        return found

    # ── what the resolver of the whole program answers ────────────────────────────────────────

    def returns(self, function: Function) -> list[ast.Return]:
        """Return the statements that return a value from a function."""
        return self.resolver.returns(function)

    def bindings(self, name: ast.Name) -> list[Binding]:
        """Return the places that bind this name in the scope that owns it."""
        return self.resolver.linker.bindings(name)

    def qualify(self, node: ast.expr) -> str | None:
        """Return the full name of what an expression refers to, if it was imported or is a builtin."""
        return self.resolver.linker.qualify(node)

    def definitions(self, node: ast.expr) -> list[ast.expr | None]:
        """Return the expressions this one may stand for, one step back; None stands for "not known"."""
        return self.resolver.definitions(node)

    def unpacked(self, name: ast.Name) -> list[tuple[ast.expr, tuple[int, ...]]] | None:
        """Return (value, place in it) for each unpacking that gives a name its value, if nothing else does."""
        return self.resolver.unpacked(name)

    def callers(self, function: Function) -> list[ast.Call]:
        """Return the calls in the program of a function."""
        return self.resolver.callers(function)

    def argument_for(self, function: Function, call: ast.Call, name: str) -> ast.expr | None:
        """Return the expression that a call gives for one parameter, or its default."""
        return argument_for(function, call, name)

    def target(self, call: ast.Call) -> Function | None:
        """Return the function or method of the program that a call runs, if exactly one can be meant."""
        return self.resolver.target(call)

    def constructor(self, call: ast.Call) -> Function | None:
        """Return the `__init__` that a call of a class of the program runs."""
        return self.resolver.constructor(call)

    def function_named(self, name: ast.expr) -> Function | None:
        """Return the function of the program that a name stands for."""
        return self.resolver.function_named(name)

    def method(self, owner: Class, name: str) -> Function | None:
        """Return the method of a class of the program, or of its bases in it."""
        return self.resolver.method(owner, name)

    def class_named(self, node: ast.expr) -> Class | None:
        """Return the class of the program that a name stands for."""
        return self.resolver.class_named(node)

    def lineage(self, owner: Class) -> list[Class]:
        """Return a class and its bases in the program, nearest first."""
        return self.resolver.lineage(owner)

    def class_of(self, node: ast.expr) -> Class | None:
        """Return the class of the program that an expression is an instance of."""
        return self.resolver.class_of(node)

    def unwrapped(self, call: ast.Call) -> ast.expr | None:
        """Return x for `x.to(...)`, `x.cuda()`, `DDP(x)`, `torch.compile(x)`: the same module, elsewhere."""
        return self.resolver.unwrapped(call)

    def attributes(self, owner: Class) -> dict[str, list[Binding]]:
        """Return every `self.NAME` and class-level name that a class binds."""
        return self.index.attributes.get(owner, {})

    # ── classes and kinds ─────────────────────────────────────────────────────────────────────

    @cached_property
    def classes(self) -> dict[str, Class]:
        """The classes of this file by name."""
        return {node.name: node for node in self.all(ast.ClassDef)}

    def class_kind(self, owner: Class) -> str | None:
        """Return what an instance of a class of the program is."""
        bases = (self.qualify(base) for each in self.lineage(owner) for base in each.bases)
        kind = next(filter(None, (kinds.of_base(base) for base in bases if base)), None)
        return None if kind == "optimizer" and reads_no_gradient(self, owner) else kind

    def classes_of_kind(self, *wanted: str) -> list[Class]:
        """Return the classes of this file whose instances are of these kinds; a LightningModule is a module, too."""
        kinds = {*wanted, "lightning module"} if "module" in wanted else {*wanted}
        return [each for each in self.classes.values() if self.class_kind(each) in kinds]

    def kind(self, node: ast.expr, depth: int = 0) -> str | None:
        """Return what sort of thing an expression is: optimizer, module, loader, loss, ..."""
        place, kinds_of_places = self.resolver.place(node), self.resolver.kinds
        if place not in kinds_of_places:
            kinds_of_places[place] = None
            kinds_of_places[place] = self._kind(node, depth)
        return kinds_of_places[place]

    def _kind(self, node: ast.expr, depth: int) -> str | None:
        if isinstance(node, ast.Call):
            return self._call_kind(node, depth)
        if depth > MAX_DEPTH:
            return None
        found = [each for each in self.definitions(node) if not is_none(each)]
        known = kinds.agreed({self.kind(each, depth + 1) for each in found if each is not None})
        if len(known) == 1 and None not in found and (kind := known.pop()) is not None:
            return kind
        if found and None not in found and all(self._is_in_sight(each) for each in found if each is not None):
            return None
        if isinstance(node, ast.Name) and (hint := self.resolver.annotation(node)) is not None:
            declared = self.qualify(hint) or ""
            if kind := kinds.of_constructor(declared) or kinds.of_base(declared):
                return kind
        if (part := self._kind_of_part(node) or self._kind_of_items(node, depth)) is not None:
            return part
        place = dotted(node)
        named = kinds.of_name(place.rpartition(".")[2]) if place else None
        if named is None or is_setting(self.resolver, node) or self.home(node).is_of_other_framework:
            return None
        if not self._is_unbound(node):
            self.resolver.guessed.add(self.resolver.place(node))
        return named

    def _kind_of_items(self, node: ast.expr, depth: int) -> str | None:
        """`for model, optimizer in zip(models, optimizers)`."""
        found = {self.kind(each, depth + 1) for each in items_gone_through(self.resolver, node)}
        return found.pop() if len(found) == 1 else None

    def _kind_of_part(self, node: ast.expr) -> str | None:
        """`first, second = self.optimizers()`."""
        places = self.unpacked(node) if isinstance(node, ast.Name) else None
        found = {
            self.given_by_library(value) if isinstance(value, ast.Call) else None for value, _ in places or ()
        }
        return found.pop() if len(found) == 1 else None

    def given_by_library(self, call: ast.Call) -> str | None:
        """Return what a library's method gives on an object of a class of the program."""
        if not isinstance(call.func, ast.Attribute) or not kinds.is_giving(call.func.attr):
            return None
        owner = self.class_of(call.func.value)
        kind = kinds.of_method(self.class_kind(owner) or "", call.func.attr) if owner is not None else None
        return kind if kind is not None and self.target(call) is None else None

    def _is_unbound(self, node: ast.expr) -> bool:
        """Tell a name that nothing in sight binds, as in a cell whose imports stand in another."""
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        return isinstance(root, ast.Name) and root.id != "self" and not self.bindings(root)

    def is_guess(self, node: ast.expr) -> bool:
        """Tell whether what a name stands for is guessed from the name, and no use of it says the same."""
        kind = self.kind(node)
        seen: set[ast.expr] = set()
        waiting: list[ast.expr | None] = [node]
        while waiting:
            current = waiting.pop()
            if current is None or current in seen:
                continue
            seen.add(current)
            self.kind(current)
            if self.resolver.place(current) in self.resolver.guessed:
                return not self.is_used_as(node, kind)
            if isinstance(current, ast.Name | ast.Attribute):
                waiting += self.definitions(current)
        return False

    def is_used_as(self, node: ast.expr, kind: str | None) -> bool:
        """Tell whether a method that only such objects have is called on it, or an attribute of theirs is read."""
        wanted = kinds.USES.get(kind or "", ())
        place, home = dotted(node), self.home(node)
        scope = home.scope(node)
        owner = home.enclosing(node, ast.ClassDef)
        for each in home.all(ast.Attribute):
            bare = isinstance(home.parents[each], ast.Expr)  # `net.eval`: what is not called tells nothing
            if each.attr in wanted and not bare and dotted(each.value) == place:
                shared = (place or "").startswith("self.") and home.enclosing(each, ast.ClassDef) is owner
                if shared or home.scope(each) is scope:
                    return True
        return False

    def _is_in_sight(self, value: ast.expr) -> bool:
        """Tell whether what a value is made by can be seen: no name says more of it then."""
        if isinstance(value, ast.Call):
            name = self.qualify(value.func) or ""
            home = name.partition(".")[0]
            return self.class_named(value.func) is not None or home == "torch" or home in kinds.FOREIGN
        return isinstance(value, ast.Constant | ast.BinOp | ast.Dict | ast.List | ast.Tuple | ast.JoinedStr)

    def _call_kind(self, call: ast.Call, depth: int) -> str | None:
        if (made := self.class_named(call.func)) is not None:
            behind = self.resolver.behind(made, call)
            return self.class_kind(made) or (self.kind(behind, depth + 1) if behind is not None else None)
        if (name := self.qualify(call.func)) and (kind := kinds.of_constructor(name)):
            return kind
        if (given := self.given_by_library(call)) is not None:
            return given
        inner = self.unwrapped(call)
        return self.kind(inner, depth + 1) if inner is not None else None
