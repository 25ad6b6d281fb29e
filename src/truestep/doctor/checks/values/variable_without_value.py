# SPDX-License-Identifier: Apache-2.0
"""A name that has no value yet, or never."""

import ast
import builtins
from collections.abc import Iterator
from pathlib import Path

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Binding, Function, Scope

_KNOWN = {
    *dir(builtins),
    "__file__",
    "__path__",
    "__class__",
    "__annotations__",
    "WindowsError",
    "get_ipython",
    "profile",
}
_OLD = {
    "unicode", "xrange", "raw_input", "basestring", "long", "reduce", "unichr", "file", "execfile", "cmp", "reload",
    "buffer", "_",
}  # fmt: skip


_MAKES_NAMES = {"exec", "globals", "locals", "vars", "__builtins__", "execfile"}
_USUAL = {"x", "y"}  # of the examples in manuals


class VariableWithoutValue(SourceCheck):
    """A function assigns a name that also stands outside of it, and reads it before; or nothing gives a name a value.

    Why: an assignment makes the name the function's own, so Python stops with an UnboundLocalError (or a NameError)
    when it comes there.

    Bad:
        num_steps = 0

        def train(loader):
            for x, y in loader:
                F.cross_entropy(net(x), y).backward()
                num_steps += 1  # here

    Good:
        num_steps = 0

        def train(loader):
            global num_steps
            for x, y in loader:
                F.cross_entropy(net(x), y).backward()
                num_steps += 1

    Fix: `global NAME` (of an outer function: `nonlocal NAME`), a parameter, or the name that is meant.

    Evidence: 186 repositories: 91 true, 12 debatable, 0 false.
    """

    code = "VALUE041"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report names that a function reads before it binds them, and those that nothing binds."""
        if "torch" not in module.text:
            return
        told: set[tuple[Scope, str]] = set()
        for function in module.functions:
            for name in _own_and_outer(module, function):
                node = _read_too_early(module, function, name)
                if node is not None and (function, name) not in told:
                    told.add((function, name))
                    yield At(
                        node,
                        f"{name!r} is this function's own, and has no value here: no global says otherwise.",
                    )
        found = list(_never_bound(module)) if module.path.endswith(".py") else []
        if found and Path(module.path).is_file():  # a text that is no file may be a part of one
            yield from found


def _own_and_outer(module: SourceModule, function: Function) -> list[str]:
    """Return the names that a function binds and doesn't declare, and that something around it binds too."""
    names = module.index.names[function]
    found = []
    for name, bindings in names.bindings.items():
        if name in names.declared_outside or any(
            each.how in ("parameter", "import", "def") for each in bindings
        ):
            continue
        if any(module.enclosing(each.node, ast.comprehension) is not None for each in bindings):
            continue  # it is the comprehension's own
        if names.outer is not None and module.resolver.linker.owner(name, names.outer.scope) is not None:
            found.append(name)
    return found


def _read_too_early(module: SourceModule, function: Function, name: str) -> ast.AST | None:
    """Return the first place that reads a name, where it stands before all that binds it."""
    bindings = module.index.names[function].bindings[name]
    uses: list[ast.AST] = [
        each
        for each in module.directly_in(function, ast.Name)
        if each.id == name and isinstance(each.ctx, ast.Load)
    ]
    uses += [each.node for each in bindings if each.how == "augmented"]
    first = min(uses, key=_line, default=None)
    if first is None or _is_guarded(module, first, name):
        return None
    others = [each for each in bindings if each.node is not first]
    if any(_line(each.node) <= _line(first) or _comes_round(module, each, first) for each in others):
        return None
    if any(isinstance(each, ast.comprehension | ast.Lambda) for each in module.ancestors(first)):
        return None
    return first


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


def _comes_round(module: SourceModule, binding: Binding, read: ast.AST) -> bool:
    """Tell whether a loop around a read, which a condition may leave out at first, binds the name further down."""
    loops = [each for each in module.ancestors(read) if isinstance(each, ast.For | ast.While)]
    loops = [each for each in loops if each in module.ancestors(binding.node)]
    conditions = ast.If | ast.IfExp | ast.BoolOp | ast.Try
    return bool(loops) and any(
        isinstance(each, conditions) and loops[-1] in module.ancestors(each)
        for each in module.ancestors(read)
    )


def _is_guarded(module: SourceModule, node: ast.AST, name: str) -> bool:
    """Tell a read within `try`, or behind a question after the name itself."""
    for each in module.ancestors(node):
        if isinstance(each, ast.Try) and each.handlers:
            return True
        if isinstance(each, ast.If) and f"'{name}'" in ast.unparse(each.test):
            return True
    return False


def _never_bound(module: SourceModule) -> Iterator[At]:
    """Yield the first read of each name that nothing in its file binds, unless the file is a part of something else."""
    if "*" in {alias.name for each in module.all(ast.ImportFrom) for alias in each.names}:
        return
    if {each.id for each in module.all(ast.Name)} & _MAKES_NAMES:
        return
    known = _KNOWN | _OLD | set(_bound_otherwise(module))
    found: dict[str, ast.Name] = {}
    for name in module.all(ast.Name):
        if not isinstance(name.ctx, ast.Load) or name.id in known or name.id in found:
            continue
        if module.bindings(name) or name.id.startswith("__") or _is_passed_over(module, name):
            continue
        if name.id in _USUAL or module.kind(name) is not None or not isinstance(module.scope(name), Function):
            return  # a fragment: what stands before it gives these names their values
        found[name.id] = name
    for text, name in found.items():
        yield At(name, f"Nothing in this file gives {text!r} a value.")


def _bound_otherwise(module: SourceModule) -> Iterator[str | None]:
    """Yield the names that patterns, classes and declarations bind, or that a statement deletes."""
    for pattern in module.all(ast.MatchAs):
        yield pattern.name
    for rest in module.all(ast.MatchStar):
        yield rest.name
    for mapping in module.all(ast.MatchMapping):
        yield mapping.rest
    for owner in module.all(ast.ClassDef):
        yield from module.attributes(owner)
    for outer in module.all(ast.Global):
        yield from outer.names
    for outer_too in module.all(ast.Nonlocal):
        yield from outer_too.names
    for name in module.all(ast.Name):
        if isinstance(name.ctx, ast.Del):
            yield name.id


def _is_passed_over(module: SourceModule, name: ast.Name) -> bool:
    """Tell what may never be computed: an annotation, a part of `if False` or TYPE_CHECKING, what is guarded."""
    below: ast.AST = name
    for each in module.ancestors(name):
        if isinstance(each, ast.arg) or (isinstance(each, ast.AnnAssign) and below is each.annotation):
            return True
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and below is each.returns:
            return True
        if isinstance(each, ast.If) and isinstance(each.test, ast.Constant):
            return True
        below = each
    return _is_guarded(module, name, name.id)
