# SPDX-License-Identifier: Apache-2.0
"""Scopes and names: where a name is bound, and what it is called where it comes from."""

import ast
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from truestep.doctor.source import kinds

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Class = ast.ClassDef
Scope = ast.Module | Function
Node = TypeVar("Node", bound=ast.AST)
Found = TypeVar("Found", bound=Hashable)

# The same thing under its private and its public address.
_PUBLIC = [
    (re.compile(r"^torch\.nn\.modules\.\w+\."), "torch.nn."),
    (re.compile(r"^torch\.nn\.utils\.clip_grad\."), "torch.nn.utils."),
    (re.compile(r"^torch\.nn\.parallel\.(?:distributed|data_parallel)\.(?=[A-Z])"), "torch.nn.parallel."),
    (re.compile(r"^torch\.nn\.(DataParallel|DistributedDataParallel)$"), r"torch.nn.parallel.\1"),
    (re.compile(r"^torch\.optim\.(?!lr_scheduler|swa_utils)[a-z]\w*\.(?=[A-Z])"), "torch.optim."),
    (re.compile(r"^torch\.utils\.data\.(?:dataloader|dataset|sampler|distributed)\."), "torch.utils.data."),
    (re.compile(r"^(torch\.amp|torch\.cuda\.amp)\.(?:autocast_mode|grad_scaler)\."), r"\1."),
]
EXITS = (ast.Return, ast.Raise, ast.Break, ast.Continue)  # statements behind which none of their block runs


@dataclass(eq=False, slots=True)  # nobody changes one; a frozen class takes three times as long to make
class Binding:
    """One place that gives a name its value; `value` is None where the value has no expression."""

    node: ast.AST
    value: ast.expr | None
    how: str  # assign, unpack, for, with, parameter, import, def, class, augmented, elsewhere (by a function's `global`)
    parameter_of: Function | None = None
    position: tuple[int, ...] = ()  # where in an unpacked value: (1, 0) for h in `out, (h, c) = ...`

    @property
    def line(self) -> int:
        """Return the line on which the value is there."""
        return int(getattr(self.node, "lineno", 0))


@dataclass
class ScopeNames:
    """The names bound directly in one module or function."""

    scope: Scope
    tree: ast.Module
    outer: "ScopeNames | None" = None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    declared_outside: set[str] = field(default_factory=set)

    def add(self, name: str, binding: Binding) -> None:
        """Note one more place that binds the name."""
        self.bindings.setdefault(name, []).append(binding)


def dotted_name(node: ast.AST) -> str | None:
    """Return `a.b.c` for a chain of attributes on a name, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def last_part(node: ast.AST) -> str:
    """Return c of `a.b.c`, "" for what is no chain of attributes on a name."""
    return (dotted_name(node) or "").rpartition(".")[2]


def method_of(call: ast.Call) -> str:
    """Return the name of the method that is called, "" where a function is."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def receiver_of(call: ast.Call) -> ast.expr | None:
    """Return x of `x.method()`."""
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def given_to(call: ast.Call) -> list[ast.expr]:
    """Return all that a call is given, by place and by name."""
    return [*call.args, *(word.value for word in call.keywords)]


def names_in(node: ast.AST) -> list[str]:
    """Return every plain name in an expression or statement, as often as it stands there."""
    return [each.id for each in walk(node) if isinstance(each, ast.Name)]


def common_answer(found: Iterable[Found]) -> Found | None:
    """Return what all of some answers are; None where they differ, or there are none."""
    different = set(found)
    return different.pop() if len(different) == 1 else None


def is_self(node: ast.AST | None) -> bool:
    """Tell the object whose method this stands in, by its usual name."""
    return isinstance(node, ast.Name) and node.id == "self"


def is_read(node: ast.AST) -> bool:
    """Tell a name, an attribute or an item that is neither given a value here nor deleted."""
    return isinstance(getattr(node, "ctx", None), ast.Load)


def is_none(node: ast.expr | None) -> bool:
    """Tell whether `None` is written here."""
    return isinstance(node, ast.Constant) and node.value is None


@lru_cache(4_096)
def public_source_name(name: str) -> str:
    """Return the public address of a qualified name."""
    for pattern, replacement in _PUBLIC:
        name = pattern.sub(replacement, name)
    return name


def imported_full_name(node: ast.AST, name: str) -> str | None:
    """Return the full name of what an import binds to a name."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname == name:
                return alias.name
            if alias.asname is None and alias.name.split(".")[0] == name:
                return name
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            if (alias.asname or alias.name) == name:
                return ".".join(part for part in (node.module, alias.name) if part)
    return None


Target = tuple[ast.expr, ast.expr | None, tuple[int, ...]]


def _unpack_targets(
    target: ast.expr, value: ast.expr | None, position: tuple[int, ...] = ()
) -> Iterator[Target]:
    """Yield (simple target, the value it comes from, its position in that value)."""
    if isinstance(target, ast.Starred):
        yield target.value, None, (*position, 0)
    elif not isinstance(target, (ast.Tuple, ast.List)):
        yield target, value, position
    elif isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts) and not position:
        for part, part_value in zip(target.elts, value.elts, strict=True):
            yield from _unpack_targets(part, part_value)
    else:
        starred = [isinstance(each, ast.Starred) for each in target.elts]
        for index, part in enumerate(target.elts):
            place = index - len(starred) if any(starred[:index]) else index
            yield from _unpack_targets(part, value, (*position, place))


# The fields that never hold a node, by the types that have them; `name` holds one in a type alias alone.
_TEXTS = frozenset((
    "arg", "asname", "attr", "conversion", "ctx", "id", "is_async", "kind", "kwd_attrs", "level", "module", "name", "rest",
    "simple", "str", "type_comment",
))  # fmt: skip
_WITHOUT_NODES = (ast.Constant, ast.Global, ast.MatchSingleton, ast.Nonlocal, ast.alias)


class _NodeFields(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of each type of node that may hold nodes."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        of_nodes = tuple(
            each
            for each in kind._fields
            if each not in _TEXTS or (kind.__name__, each) == ("TypeAlias", "name")
        )
        self[kind] = () if kind in _WITHOUT_NODES else of_nodes
        return self[kind]


_FIELDS = _NodeFields()


def children_of(node: ast.AST) -> list[ast.AST]:
    """Return what `ast.iter_child_nodes` yields, but for the contexts of names, several times as fast."""
    found: list[ast.AST] = []
    for name in _FIELDS[type(node)]:
        value = getattr(node, name, None)
        if type(value) is list:
            found += value if None not in value else [each for each in value if each is not None]
        elif value is not None:
            found.append(value)
    return found


def assignment_target(node: ast.Assign | ast.AugAssign) -> ast.expr:
    """Return what an assignment gives a value to; the first, of several."""
    return node.targets[0] if isinstance(node, ast.Assign) else node.target


def walk(node: ast.AST) -> list[ast.AST]:
    """Return a node and all beneath it, level by level, as `ast.walk` does, but for the contexts of names."""
    found = [node]
    for each in found:
        inside = each.__dict__.get("beneath")
        found += children_of(each) if inside is None else inside
    return found


@dataclass
class Index:
    """The tables of all files that are read together: a question about a node has one answer, whoever asks."""

    names: dict[Scope, ScopeNames] = field(default_factory=dict)
    attributes: dict[ast.ClassDef, dict[str, list[Binding]]] = field(default_factory=dict)
    written: dict[str, list[tuple[ast.expr, Binding]]] = field(
        default_factory=dict
    )  # `run.opt = x`, by "opt"
    held: set[str] = field(
        default_factory=set
    )  # all names of attributes that a class, an object or a file has
    items: dict[Scope, list[tuple[ast.expr, Any, ast.expr]]] = field(default_factory=dict)  # `table["a"] = x`
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    scope_of: dict[ast.AST, Scope] = field(default_factory=dict)
    calls: dict[str, list[ast.Call]] = field(default_factory=dict)  # by the last name of what is called
    keywords: set[str] = field(default_factory=set)  # all names by which calls are given something

    def tree_of(self, node: ast.AST) -> ast.Module:
        """Return the file that a node stands in."""
        return self.names[self.scope_of[node]].tree

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what encloses the node, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def is_option(self, binding: Binding) -> bool:
        """Tell a field of a dataclass: what stands there is what it is where nobody gives another value."""
        owner = self.parents.get(binding.node)
        if not isinstance(binding.node, ast.AnnAssign) or not isinstance(owner, ast.ClassDef):
            return False
        makers = [*owner.decorator_list, *owner.bases]
        names = [dotted_name(each.func if isinstance(each, ast.Call) else each) or "" for each in makers]
        return any(each.rpartition(".")[2] in kinds.WITH_FIELDS for each in names)

    def is_called(self, node: ast.AST) -> bool:
        """Tell `node(...)` from a place that only names it."""
        above = self.parents.get(node)
        return isinstance(above, ast.Call) and above.func is node

    def enclosing(self, node: ast.AST, *types: type[Node]) -> Node | None:
        """Return the innermost enclosing node of these types."""
        return next((each for each in self.ancestors(node) if isinstance(each, types)), None)


# The nodes that bind a name or are looked up by one: nine in ten are neither.
_BINDING = frozenset((
    ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.AugAssign, ast.For, ast.AsyncFor, ast.comprehension, ast.withitem,
    ast.Call, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Global,
    ast.Nonlocal, ast.ExceptHandler,
))  # fmt: skip

_INNER = frozenset((ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef))  # what names live in


class SourceBinder:
    """Walks a file once and notes every binding, every parent and every enclosing scope."""

    def __init__(self, tree: ast.Module, index: Index) -> None:
        self.index = index
        self.names, self.attributes = index.names, index.attributes
        self.parents, self.scope_of = index.parents, index.scope_of
        self.names[tree] = ScopeNames(tree, tree)
        self.nodes: defaultdict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        self._numbers: defaultdict[type[ast.AST], list[int]] = defaultdict(
            list
        )  # their places among all nodes
        self._visit(tree)
        self._add_from_elsewhere(tree)
        own = [self.attributes[each] for each in self.nodes[ast.ClassDef] if isinstance(each, ast.ClassDef)]
        index.held.update(self.names[tree].bindings, *own)

    def _visit(self, tree: ast.Module) -> None:
        """Number the nodes, each with the last one beneath it, and note what walks through them will ask for."""
        parents, scope_of, nodes, numbers = self.parents, self.scope_of, self.nodes, self._numbers
        stack: list[tuple[ast.AST, Scope, ast.ClassDef | None]] = [(tree, tree, None)]
        above: list[Any] = []  # the nodes with others beneath them
        number = 0
        while stack:
            node: Any
            node, scope, owner = stack.pop()
            kind = type(node)
            numbers[kind].append(number)
            node.number = node.last = number
            number += 1
            scope_of[node] = scope
            nodes[kind].append(node)
            if kind in _BINDING:
                self._bind(node, scope, owner)
            if kind in _INNER:
                if isinstance(node, ast.ClassDef):
                    self.attributes.setdefault(node, {})
                    owner = node
                elif isinstance(node, Function):
                    scope = self._enter_scope(node, scope)
            node.beneath = inside = children_of(node) if _FIELDS[kind] else ()
            if inside:
                above.append(node)
            for child in reversed(inside):
                parents[child] = node
                stack.append((child, scope, owner))
        for node in reversed(above):
            node.last = node.beneath[-1].last

    def _add_from_elsewhere(self, tree: ast.Module) -> None:
        """Note with each name that a function rebinds by `global` or `nonlocal` that it may hold something else from then on."""
        declaring = [names for names in self.names.values() if names.tree is tree and names.declared_outside]
        for names, name in [(each, name) for each in declaring for name in each.declared_outside]:
            owner = names.outer
            while owner is not None and (name not in owner.bindings or name in owner.declared_outside):
                owner = owner.outer
            known = owner.bindings[name] if owner is not None else []
            rebound = names.bindings.get(name, ()) if owner is not None else ()
            if any(each.how != "import" for each in [*known, *rebound]):  # else a library is imported late
                known += [Binding(each.node, None, "elsewhere") for each in rebound]
                known.sort(key=lambda each: each.line)

    def inside(self, node: ast.AST, kind: type[Node]) -> list[Node]:
        """Return the nodes of a type from a node on down, in their order."""
        numbers = self._numbers.get(kind, [])
        start = bisect_left(numbers, node.number)  # type: ignore[attr-defined]
        end = bisect_right(numbers, node.last, lo=start)  # type: ignore[attr-defined]
        return self.nodes[kind][start:end] if end > start else []  # type: ignore[return-value]

    def _enter_scope(self, node: Function, scope: Scope) -> Scope:
        outer = self.names[scope]
        names = self.names[node] = ScopeNames(node, outer.tree, outer)
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        every += [argument for argument in (node.args.vararg, node.args.kwarg) if argument]
        for argument in every:
            names.add(argument.arg, Binding(argument, None, "parameter", node))
        return node

    def _bind(self, node: ast.AST, scope: Scope, owner: ast.ClassDef | None) -> None:
        match node:
            case ast.Assign():
                for target in node.targets:
                    self._bind_assignment(target, node.value, node, scope, owner)
            case ast.AnnAssign() | ast.NamedExpr() if node.value is not None:
                self._bind_assignment(node.target, node.value, node, scope, owner)
            case ast.AugAssign():
                self._bind_target(node.target, Binding(node, node.value, "augmented"), scope, owner)
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                for target, _, _ in _unpack_targets(node.target, None):
                    self._bind_target(target, Binding(target, node.iter, "for"), scope, owner)
            case ast.withitem() if node.optional_vars is not None:
                binding = Binding(node.optional_vars, node.context_expr, "with")
                self._bind_target(node.optional_vars, binding, scope, owner)
            case ast.Call():
                last = (
                    node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                )
                self.index.calls.setdefault(last, []).append(node)
                self.index.keywords.update(word.arg for word in node.keywords if word.arg)
            case _:
                self._declare(node, scope, owner)

    def _declare(self, node: ast.AST, scope: Scope, owner: ast.ClassDef | None) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._bind_definition(node, scope, owner)
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    name = alias.asname or alias.name.split(".")[0]
                    self.names[scope].add(name, Binding(node, None, "import"))
            case ast.Global() | ast.Nonlocal():
                self.names[scope].declared_outside |= set(node.names)
            case ast.ExceptHandler() if node.name:
                self.names[scope].add(node.name, Binding(node, None, "with"))

    def _bind_definition(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
        scope: Scope,
        owner: ast.ClassDef | None,
    ) -> None:
        if owner is not None and self.parents.get(node) is owner:
            self.attributes.setdefault(owner, {}).setdefault(node.name, []).append(Binding(node, None, "def"))
        else:
            self.names[scope].add(node.name, Binding(node, None, "def"))

    def _bind_assignment(
        self, target: ast.expr, value: ast.expr, node: ast.AST, scope: Scope, owner: ast.ClassDef | None
    ) -> None:
        for simple, source, position in _unpack_targets(target, value):
            how = "unpack" if position else "assign"
            self._bind_target(simple, Binding(node, source, how, position=position), scope, owner)

    def _bind_target(
        self, target: ast.expr, binding: Binding, scope: Scope, owner: ast.ClassDef | None
    ) -> None:
        if isinstance(target, ast.Name):
            if owner is not None and scope is self.scope_of.get(owner):
                self.attributes.setdefault(owner, {}).setdefault(target.id, []).append(binding)
            else:
                self.names[scope].add(target.id, binding)
        elif isinstance(target, ast.Attribute):
            if owner is not None and dotted_name(target) == f"self.{target.attr}":
                self.attributes.setdefault(owner, {}).setdefault(target.attr, []).append(binding)
            else:
                self.index.held.add(target.attr)
                self.index.written.setdefault(target.attr, []).append((target.value, binding))
        elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant) and binding.value:
            items = self.index.items.setdefault(scope, [])
            items.append((target.value, target.slice.value, binding.value))
