# SPDX-License-Identifier: Apache-2.0
"""Scopes and names: where a name is bound, and what it is called where it comes from."""

import ast
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from truestep.doctor.source import kinds

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Class = ast.ClassDef
Scope = ast.Module | Function
Node = TypeVar("Node", bound=ast.AST)

# The same thing under its private and its public address.
_PUBLIC = [
    (re.compile(r"^torch\.nn\.modules\.\w+\."), "torch.nn."),
    (re.compile(r"^torch\.nn\.utils\.clip_grad\."), "torch.nn.utils."),
    (re.compile(r"^torch\.nn\.parallel\.(?:distributed|data_parallel)\.(?=[A-Z])"), "torch.nn.parallel."),
    (re.compile(r"^torch\.nn\.(DataParallel|DistributedDataParallel)$"), r"torch.nn.parallel.\1"),
    (re.compile(r"^torch\.optim\.(?!lr_scheduler|swa_utils)[a-z]\w*\.(?=[A-Z])"), "torch.optim."),
    (re.compile(r"^torch\.utils\.data\.(?:dataloader|dataset|sampler|distributed)\."), "torch.utils.data."),
    (re.compile(r"^torch\.(?:amp|cuda\.amp)\.(?:autocast_mode|grad_scaler)\."), "torch.amp."),
]


@dataclass(frozen=True)
class Binding:
    """One place that gives a name its value; `value` is None where the value has no expression."""

    node: ast.AST
    value: ast.expr | None
    how: str  # assign, unpack, for, with, parameter, import, def, class, augmented
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
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    declared_outside: set[str] = field(default_factory=set)

    def add(self, name: str, binding: Binding) -> None:
        """Note one more place that binds the name."""
        self.bindings.setdefault(name, []).append(binding)


def dotted(node: ast.AST) -> str | None:
    """Return `a.b.c` for a chain of attributes on a name, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def names_in(node: ast.AST) -> list[str]:
    """Return every plain name in an expression or statement, as often as it stands there."""
    return [each.id for each in walk(node) if isinstance(each, ast.Name)]


def is_none(node: ast.expr | None) -> bool:
    """Tell whether `None` is written here."""
    return isinstance(node, ast.Constant) and node.value is None


def public_source_name(name: str) -> str:
    """Return the public address of a qualified name."""
    for pattern, replacement in _PUBLIC:
        name = pattern.sub(replacement, name)
    return name


def imported(node: ast.AST, name: str) -> str | None:
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


def _targets(target: ast.expr, value: ast.expr | None, position: tuple[int, ...] = ()) -> Iterator[Target]:
    """Yield (simple target, the value it comes from, its position in that value)."""
    if isinstance(target, ast.Starred):
        yield target.value, None, (*position, 0)
    elif not isinstance(target, ast.Tuple | ast.List):
        yield target, value, position
    elif isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) and not position:
        for part, part_value in zip(target.elts, value.elts, strict=True):
            yield from _targets(part, part_value)
    else:
        for index, part in enumerate(target.elts):
            yield from _targets(part, value, (*position, index))


def children_of(node: ast.AST) -> list[ast.AST]:
    """Return what `ast.iter_child_nodes` yields, but for the contexts of names, several times as fast."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            found += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST) and name != "ctx":
            found.append(value)
    return found


def stored_in(node: ast.Assign | ast.AugAssign) -> ast.expr:
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
    items: dict[Scope, list[tuple[ast.expr, Any, ast.expr]]] = field(default_factory=dict)  # `table["a"] = x`
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    children: dict[ast.AST, list[ast.AST]] = field(default_factory=dict)
    scope_of: dict[ast.AST, Scope] = field(default_factory=dict)
    calls: dict[str, list[ast.Call]] = field(default_factory=dict)  # by the last name of what is called

    def tree_of(self, node: ast.AST) -> ast.Module:
        """Return the file that a node stands in."""
        while not isinstance(node, ast.Module):
            node = self.scope_of[node]
        return node

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
        names = [dotted(each.func if isinstance(each, ast.Call) else each) or "" for each in makers]
        return any(each.rpartition(".")[2] in kinds.WITH_FIELDS for each in names)

    def enclosing(self, node: ast.AST, *types: type[Node]) -> Node | None:
        """Return the innermost enclosing node of these types."""
        return next((each for each in self.ancestors(node) if isinstance(each, types)), None)


# The nodes that bind a name or are looked up by one: nine in ten are neither.
_BINDING = frozenset((
    ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.AugAssign, ast.For, ast.AsyncFor, ast.comprehension, ast.withitem,
    ast.Call, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Global,
    ast.Nonlocal, ast.ExceptHandler,
))  # fmt: skip


class SourceBinder:
    """Walks a file once and notes every binding, every parent and every enclosing scope."""

    def __init__(self, tree: ast.Module, index: Index) -> None:
        self.index = index
        self.names, self.attributes = index.names, index.attributes
        self.parents, self.children, self.scope_of = index.parents, index.children, index.scope_of
        self.names[tree] = ScopeNames(tree)
        self.nodes: dict[type[ast.AST], list[ast.AST]] = {}
        self.first: dict[ast.AST, int] = {}  # its place among all nodes of the file,
        self.last: dict[ast.AST, int] = {}  # and that of the last one beneath it
        self._visit(tree, tree, None)

    def _visit(self, node: ast.AST, scope: Scope, owner: ast.ClassDef | None) -> None:
        stack: list[tuple[ast.AST, Scope, ast.ClassDef | None]] = [(node, scope, owner)]
        order: list[ast.AST] = []
        while stack:
            node, scope, owner = stack.pop()
            self.first[node] = len(order)
            order.append(node)
            self.scope_of[node] = scope
            self.nodes.setdefault(type(node), []).append(node)
            if type(node) in _BINDING:
                self._bind(node, scope, owner)
            if isinstance(node, Function):
                inner, inner_owner = self._enter(node), owner
            elif isinstance(node, ast.ClassDef):
                self.attributes.setdefault(node, {})
                inner, inner_owner = scope, node
            else:
                inner, inner_owner = scope, owner
            inside = self.children[node] = children_of(node)
            node.beneath = inside  # type: ignore[attr-defined]  # what walks through it needs no table then
            for child in reversed(inside):
                self.parents[child] = node
                stack.append((child, inner, inner_owner))
        for node in reversed(order):
            inside = self.children[node]
            self.last[node] = self.last[inside[-1]] if inside else self.first[node]

    def inside(self, node: ast.AST, kind: type[Node]) -> list[Node]:
        """Return the nodes of a type from a node on down, in their order."""
        found = self.nodes.get(kind, [])
        start = bisect_left(found, self.first[node], key=self.first.__getitem__)
        end = bisect_right(found, self.last[node], lo=start, key=self.first.__getitem__)
        return found[start:end]  # type: ignore[return-value]

    def _enter(self, node: Function) -> Scope:
        names = self.names[node] = ScopeNames(node)
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        every += [argument for argument in (node.args.vararg, node.args.kwarg) if argument]
        for argument in every:
            names.add(argument.arg, Binding(argument, None, "parameter", node))
        return node

    def _bind(self, node: ast.AST, scope: Scope, owner: ast.ClassDef | None) -> None:
        match node:
            case ast.Assign():
                for target in node.targets:
                    self._assign(target, node.value, node, scope, owner)
            case ast.AnnAssign() | ast.NamedExpr() if node.value is not None:
                self._assign(node.target, node.value, node, scope, owner)
            case ast.AugAssign():
                self._store(node.target, Binding(node, node.value, "augmented"), scope, owner)
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                for target, _, _ in _targets(node.target, None):
                    self._store(target, Binding(target, node.iter, "for"), scope, owner)
            case ast.withitem() if node.optional_vars is not None:
                binding = Binding(node.optional_vars, node.context_expr, "with")
                self._store(node.optional_vars, binding, scope, owner)
            case ast.Call():
                last = (
                    node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                )
                self.index.calls.setdefault(last, []).append(node)
            case _:
                self._declare(node, scope, owner)

    def _declare(self, node: ast.AST, scope: Scope, owner: ast.ClassDef | None) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._define(node, scope, owner)
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    name = alias.asname or alias.name.split(".")[0]
                    self.names[scope].add(name, Binding(node, None, "import"))
            case ast.Global() | ast.Nonlocal():
                self.names[scope].declared_outside |= set(node.names)
            case ast.ExceptHandler() if node.name:
                self.names[scope].add(node.name, Binding(node, None, "with"))

    def _define(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef,
        scope: Scope,
        owner: ast.ClassDef | None,
    ) -> None:
        if owner is not None and self.parents.get(node) is owner:
            self.attributes.setdefault(owner, {}).setdefault(node.name, []).append(Binding(node, None, "def"))
        else:
            self.names[scope].add(node.name, Binding(node, None, "def"))

    def _assign(
        self, target: ast.expr, value: ast.expr, node: ast.AST, scope: Scope, owner: ast.ClassDef | None
    ) -> None:
        for simple, source, position in _targets(target, value):
            how = "unpack" if position else "assign"
            self._store(simple, Binding(node, source, how, position=position), scope, owner)

    def _store(self, target: ast.expr, binding: Binding, scope: Scope, owner: ast.ClassDef | None) -> None:
        if isinstance(target, ast.Name):
            if owner is not None and scope is self.scope_of.get(owner):
                self.attributes.setdefault(owner, {}).setdefault(target.id, []).append(binding)
            else:
                self.names[scope].add(target.id, binding)
        elif isinstance(target, ast.Attribute):
            if owner is not None and dotted(target) == f"self.{target.attr}":
                self.attributes.setdefault(owner, {}).setdefault(target.attr, []).append(binding)
            else:
                self.index.written.setdefault(target.attr, []).append((target.value, binding))
        elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant) and binding.value:
            items = self.index.items.setdefault(scope, [])
            items.append((target.value, target.slice.value, binding.value))
