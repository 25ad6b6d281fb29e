# SPDX-License-Identifier: Apache-2.0
"""The classes of a program: which one a name stands for, which one made an object, and what they hold."""

import ast
import re
from contextlib import AbstractContextManager
from typing import Protocol

from truestep.doctor.library.loops import NAMED_AS_THESE, TAKES_BACKWARD
from truestep.doctor.source import kinds
from truestep.doctor.source.linking import SourceLinker, Variable
from truestep.doctor.source.names import (
    Binding,
    Class,
    Function,
    Index,
    common_answer,
    dotted_name,
    is_none,
    is_self,
    last_part,
    method_of,
)

_MOVES = {
    "to", "cuda", "cpu", "double", "float", "half", "bfloat16", "train", "eval", "requires_grad_"
}  # fmt: skip
_PREPARES = re.compile(r"(prepare|setup)(_\w+)?|unwrap_model")
Place = ast.AST | Variable
MAX_DEPTH = 8  # how many assignments and calls a value is followed through


class Values(Protocol):
    """Knows what expressions stand for."""

    def definitions(self, node: ast.expr) -> list[ast.expr | None]:
        """Return the expressions this one may stand for, one step back; None stands for "not known"."""

    def place(self, node: ast.expr) -> Place:
        """Return what to remember an answer by."""

    def reaching(self, name: ast.Name) -> list[Binding]:
        """Return the bindings that can be in force where the name is read."""

    def results_of(self, call: ast.Call) -> list[ast.expr]:
        """Return the expressions whose value a call of a function of the program gives back."""

    def without_callers(self) -> AbstractContextManager[None]:
        """Answer without knowing what parameters are, and remember that apart."""


class ProgramClasses:
    """Answers, for every node of an index, which class of the program is meant."""

    def __init__(self, index: Index, names: SourceLinker, values: Values) -> None:
        self.index = index
        self._names = names
        self._values = values
        self.known: dict[Place, Class | None] = {}  # of what class each object is
        self._lineages: dict[Class, list[Class]] = {}
        self._heirs: dict[Class, list[Class]] | None = None

    def lineage(self, owner: Class | None) -> list[Class]:
        """Return a class and its bases in the program, nearest first; nothing where no class is known."""
        if owner is None:
            return []
        if owner not in self._lineages:
            self._lineages[owner] = self._find_lineage(owner)
        return self._lineages[owner]

    def _find_lineage(self, owner: Class) -> list[Class]:
        found: list[Class] = []
        waiting = [owner]
        while waiting and len(found) < MAX_DEPTH:
            current = waiting.pop(0)
            if current not in found:
                found.append(current)
                bases = [self.named(base) for base in current.bases]
                waiting += [base for base in bases if base is not None]
        return found

    def bases_out_of_sight(self, owner: Class | None) -> set[str]:
        """Return the full names of what no file defines that a class, or one of its bases, is made from; "" is not known."""
        bases = (base for each in self.lineage(owner) for base in each.bases if self.named(base) is None)
        return {self._names.qualify(each) or "" for each in bases}

    def subclasses_of(self, owner: Class) -> list[Class]:
        """Return the classes of the program that are made from this one."""
        if self._heirs is None:
            self._heirs = {}
            for each in list(self.index.attributes):
                for base in self.lineage(each)[1:]:
                    self._heirs.setdefault(base, []).append(each)
        return self._heirs.get(owner, [])

    def method(self, owner: Class | None, name: str) -> Function | None:
        """Return the method of a class of the program, or of its bases in it; none where no class is known."""
        for each in self.lineage(owner):
            for binding in reversed(self.index.attributes.get(each, {}).get(name, [])):
                if isinstance(binding.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    return binding.node
        return None

    def attributes(self, owner: Class) -> dict[str, list[Binding]]:
        """Return every `self.NAME` and class-level name that a class binds."""
        return self.index.attributes.get(owner, {})

    def has(self, name: str) -> bool:
        """Tell whether any file of the program defines a class of this name."""
        return any(each.name == name for each in self.index.attributes)

    def named(self, node: ast.expr) -> Class | None:
        """Return the class of the program that a name stands for."""
        found = self._names.defined(node)
        return found if isinstance(found, ast.ClassDef) else None

    def of(self, node: ast.expr) -> Class | None:
        """Return the class of the program that an expression is an instance of."""
        if node in self.known:
            return self.known[node]
        place = self._values.place(node)
        if place not in self.known:
            self.known[place] = None  # a cycle ends here
            self.known[place] = self.known[node] = self._find_class(node)
        return self.known[place]

    def _find_class(self, node: ast.expr) -> Class | None:
        if is_self(node):
            return self.index.enclosing(node, ast.ClassDef)
        if isinstance(node, ast.Call):
            return self._class_of_call(node)
        known = [each for each in self._values.definitions(node) if not is_none(each)]
        known = [each for each in known if each is None or not self._is_same_attribute(node, each)] or known
        found = {self.of(each) if each is not None else None for each in known}
        if len(found) == 1 and (only := found.pop()) is not None:
            return only
        hint = self.annotation(node) if isinstance(node, ast.Name) else None
        return self.named(hint) if hint is not None else None

    def _is_same_attribute(self, node: ast.expr, value: ast.expr) -> bool:
        """Tell what an attribute is given that it was before: `self.net = self.net.to(device)`."""
        while isinstance(value, ast.Call) and (inner := self.unwrapped(value) or self.rewrapped(value)):
            value = inner
        return isinstance(value, ast.Attribute) and (dotted_name(value) == dotted_name(node) is not None)

    def annotation(self, name: ast.Name) -> ast.expr | None:
        """Return the type that a parameter is declared to have."""
        bindings = self._names.bindings(name)
        if len(bindings) == 1 and isinstance(bindings[0].node, ast.arg):
            return bindings[0].node.annotation
        return None

    def _class_of_call(self, call: ast.Call) -> Class | None:
        if (made := self.named(call.func)) is not None:
            return made
        if isinstance(call.func, ast.Name) and call.func.id == "super":
            above = self.lineage(self.index.enclosing(call, ast.ClassDef))[1:]
            return above[0] if above else None
        if (inner := self.unwrapped(call) or self.rewrapped(call)) is not None:
            return self.of(inner)
        return common_answer(map(self.of, self._values.results_of(call)))

    def behind(self, made: Class, call: ast.Call) -> ast.expr | None:
        """Return what an object passes its attributes on to by `__getattr__`: the one thing that it is given, or makes later."""
        if self.method(made, "__getattr__") is None or len(call.args) != 1:
            return None
        return call.args[0].body if isinstance(call.args[0], ast.Lambda) else call.args[0]

    def unwrapped(self, call: ast.Call) -> ast.expr | None:
        """Return x for `x.to(...)`, `x.cuda()`, `DDP(x)`, `torch.compile(x)`: the same module, elsewhere."""
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in _MOVES:
            return self._given_to_wrapper(call) or self.handled(call)
        return call.func.value

    def rewrapped(self, call: ast.Call) -> ast.expr | None:
        """Return x for `DDP(x)`, `torch.compile(x)` and `accelerator.prepare(x)`: what is called runs x."""
        return self._given_to_wrapper(call) or (self.prepared(call, 0) if len(call.args) == 1 else None)

    def _given_to_wrapper(self, call: ast.Call) -> ast.expr | None:
        name = self._names.qualify(call.func) or ""
        is_wrapper = name in kinds.SAME_MODULE or name.startswith("torch.nn.parallel.")
        return call.args[0] if is_wrapper and call.args else None

    def prepared(self, call: ast.Call, place: int) -> ast.expr | None:
        """Return what stands at a place of `accelerator.prepare(net, opt)`: the library gives each back, wrapped."""
        if not isinstance(call.func, ast.Attribute) or not _PREPARES.fullmatch(call.func.attr):
            return None
        given = self._spread(call.args)
        if not -len(given) <= place < len(given) or any(
            isinstance(each, ast.Starred) for each in (given[: place + 1] if place >= 0 else given[place:])
        ):
            return None
        maker, called = self.maker_of(call), last_part(call.func.value).lstrip("_")
        is_known = maker in TAKES_BACKWARD if maker is not None else called in NAMED_AS_THESE
        return given[place] if is_known and self.of(call.func.value) is None else None

    def _spread(self, arguments: list[ast.expr]) -> list[ast.expr]:
        """Return arguments, with those in place of `*parts` that it stands for, where they are written out."""
        found: list[ast.expr] = []
        for each in arguments:
            inner = each.value if isinstance(each, ast.Starred) else each
            known = [inner, *self._values.definitions(inner)] if inner is not each else []
            parts = [value.elts for value in known if isinstance(value, (ast.List, ast.Tuple))]
            found += parts[0] if len(parts) == 1 and len(known) <= 2 else [each]
        return found

    def handled(self, call: ast.Call) -> ast.expr | None:
        """Return the module of which `run.learner(module, ...)` makes a handle."""
        method = method_of(call)
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
        values = self._values.definitions(node)
        if isinstance(node, ast.Name):
            values = [*values, *(each.value for each in self._values.reaching(node) if each.how == "with")]
        return common_answer(self._names.qualify(each.func) for each in values if isinstance(each, ast.Call))
