# SPDX-License-Identifier: Apache-2.0
"""A loss that asks one network under two names, once without a gradient: the target network of a `target = policy` never lags."""

import ast
import linecache
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from inspect import isfunction, ismethod, unwrap
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

from torch import nn

from truestep.core.call_site import closure_variables
from truestep.core.frames import is_library_file
from truestep.engine.learner import Learner

_DEEPEST = 3  # a loss that calls a function that calls one
_CUTS = ("no_grad", "inference_mode")
_Function = ast.FunctionDef | ast.Lambda
_MISSING = object()


class _Asked(NamedTuple):
    """A call of a network in a loss."""

    module: nn.Module
    name: str
    """What is written at the outermost place where it is named."""
    is_constant: bool
    """Whether no gradient goes through what it answers."""


def network_asked_twice(loss: Callable[..., Any]) -> str | None:
    """Return what to say of a loss that asks one network by two names, one without a gradient; None where names were not made so.

    Two names are nobody's mistake by themselves: the second one has to be made by `target = policy` or the like.
    """
    asked = [*_asked_in(loss)]
    for one in [each for each in asked if each.is_constant]:
        with_graph = [
            each
            for each in asked
            if not each.is_constant and each.name != one.name and _are_same(each.module, one.module)
        ]
        by_name = [each for each in asked if each.name == one.name]
        if not with_graph or not all(each.is_constant for each in by_name):
            continue
        if any(_is_made_an_alias(path, one, with_graph[0]) for path in _files(loss)):
            return _SAID.format(target=one.name, net=with_graph[0].name, short=_short(one))
    return None


def _are_same(one: nn.Module, other: nn.Module) -> bool:
    first = [id(each) for each in one.parameters()]
    return bool(first) and first == [id(each) for each in other.parameters()]


def _asked_in(loss: Any, depth: int = 0) -> Iterator[_Asked]:
    if isinstance(loss, partial):
        names = {f"{number}": value for number, value in enumerate(loss.args)}
        yield from _asked_of(loss.func, {}, names, is_constant=False, depth=depth)
    else:
        yield from _asked_of(loss, {}, {}, is_constant=False, depth=depth)


def _asked_of(
    function: Any,
    given: Mapping[str, tuple[str, Any]],
    bound: Mapping[str, Any],
    *,
    is_constant: bool,
    depth: int,
) -> Iterator[_Asked]:
    """Yield the calls of networks in a function whose arguments `given` are known, by parameter, as text and object."""
    owner = function.__self__ if ismethod(function) else None
    function = unwrap(function.__func__ if ismethod(function) else function)
    node = _node_of(function) if isfunction(function) and depth < _DEEPEST else None
    if node is None:
        return
    parameters = [each.arg for each in node.args.posonlyargs + node.args.args]
    names: dict[str, Any] = dict.fromkeys(parameters, _MISSING)
    variables = closure_variables(function)
    names = {**variables.builtins, **variables.globals, **variables.nonlocals, **names}
    if owner is not None and parameters:
        names[parameters[0]] = owner
    names |= {parameters[int(at)]: value for at, value in bound.items() if int(at) < len(parameters)}
    texts = {name: text for name, (text, _) in given.items()}
    names |= {name: value for name, (_, value) in given.items()}
    reading = _Reading(node, names, texts, is_constant or _is_decorated(node))
    yield from reading.asked(depth)


class _Reading:
    """One function: what its names stand for, and which of its calls have a gradient."""

    def __init__(
        self, node: _Function, names: dict[str, Any], texts: Mapping[str, str], is_constant: bool
    ) -> None:
        self._node, self._names, self._texts, self._is_constant = node, names, texts, is_constant
        self._parents = {inner: each for each in ast.walk(node) for inner in ast.iter_child_nodes(each)}

    def asked(self, depth: int) -> Iterator[_Asked]:
        for call in [each for each in ast.walk(self._node) if isinstance(each, ast.Call)]:
            value = self._value(call.func)
            if isinstance(value, Learner | nn.Module):
                module = value.module if isinstance(value, Learner) else value
                if isinstance(module, nn.Module):
                    yield _Asked(module, self._text(call.func), self._is_constant_at(call))
            elif isfunction(value) or ismethod(value):
                yield from _asked_of(
                    value,
                    self._arguments(call, value),
                    {},
                    is_constant=self._is_constant_at(call),
                    depth=depth + 1,
                )

    def _arguments(self, call: ast.Call, function: Any) -> dict[str, tuple[str, Any]]:
        code = unwrap(function.__func__ if ismethod(function) else function).__code__
        names = code.co_varnames[ismethod(function) : code.co_argcount]
        written = dict(zip(names, call.args, strict=False))
        written |= {each.arg: each.value for each in call.keywords if each.arg}
        known = {name: (self._text(each), self._value(each)) for name, each in written.items()}
        return {name: pair for name, pair in known.items() if isinstance(pair[1], Learner | nn.Module)}

    def _text(self, node: ast.expr) -> str:
        text = ast.unparse(node)
        first, dot, rest = text.partition(".")
        return self._texts.get(first, first) + dot + rest

    def _value(self, node: ast.expr) -> Any:
        """Return what a name, an attribute or a member written out stands for; no code of the user's runs."""
        match node:
            case ast.Name(id=name):
                return self._names.get(name, _MISSING)
            case ast.Attribute(value=inner, attr=name):
                return _attribute(self._value(inner), name)
            case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
                held = self._value(inner)
                if isinstance(held, nn.ModuleDict) or type(held) is dict:
                    return dict(held.items()).get(key, _MISSING)
        return _MISSING

    def _is_constant_at(self, call: ast.Call) -> bool:
        if self._is_constant:
            return True
        node: ast.AST = call
        while (above := self._parents.get(node)) is not None:
            if isinstance(above, ast.Attribute) and above.attr in ("detach", "data"):
                return True
            if isinstance(above, ast.With) and any(_names_cut(each.context_expr) for each in above.items):
                return True
            if isinstance(above, ast.Assign) and all(map(self._is_cut_where_read, above.targets)):
                return True
            node = above
        return False

    def _is_cut_where_read(self, target: ast.expr) -> bool:
        if not isinstance(target, ast.Name):
            return False
        reads = [
            self._parents[each]
            for each in ast.walk(self._node)
            if isinstance(each, ast.Name) and each.id == target.id and isinstance(each.ctx, ast.Load)
        ]
        return bool(reads) and all(
            isinstance(each, ast.Attribute) and each.attr in ("detach", "data") for each in reads
        )


def _attribute(held: Any, name: str) -> Any:
    if isinstance(held, Learner):
        if name == "module":
            return held.module
        held = held.module
    if isinstance(held, nn.Module) and name in ("forward", "__call__"):
        return held
    for place in (getattr(held, "__dict__", {}), *(vars(each) for each in type(held).__mro__)):
        if name in place:
            value = place[name]
            return value.__get__(held) if isinstance(value, FunctionType) and held is not None else value
    modules = getattr(held, "__dict__", {}).get("_modules", {})
    return modules.get(name, _MISSING) if isinstance(modules, dict) else _MISSING


def _is_decorated(node: _Function) -> bool:
    return isinstance(node, ast.FunctionDef) and any(map(_names_cut, node.decorator_list))


def _names_cut(node: ast.expr) -> bool:
    return any(isinstance(each, ast.Attribute | ast.Name) and _last(each) in _CUTS for each in ast.walk(node))


def _last(node: ast.expr) -> str | None:
    """Return the last name of what is written out: `target` of `self.target` and of `nets["target"]`."""
    match node:
        case (
            ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name)))
        ):
            return name
    return None


def _node_of(function: FunctionType) -> _Function | None:
    code = function.__code__
    if is_library_file(code.co_filename):
        return None
    tree = _tree(code.co_filename)
    found = (
        [each for each in ast.walk(tree) if _begins_at(each, code.co_firstlineno, code.co_name)]
        if tree
        else []
    )
    return found[0] if len(found) == 1 and isinstance(found[0], ast.FunctionDef | ast.Lambda) else None


def _begins_at(node: ast.AST, line: int, name: str) -> bool:
    if isinstance(node, ast.Lambda):
        return name == "<lambda>" and node.lineno == line
    if not isinstance(node, ast.FunctionDef) or node.name != name:
        return False
    return line in (node.lineno, *(each.lineno for each in node.decorator_list))


@lru_cache(maxsize=16)
def _tree(path: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return None


def _files(loss: Any) -> list[str]:
    import __main__

    function = loss.func if isinstance(loss, partial) else loss
    function = function.__func__ if ismethod(function) else function
    files = [function.__code__.co_filename] if isfunction(function) else []
    main = getattr(__main__, "__file__", None)
    return list(dict.fromkeys([*files, *([str(Path(main))] if main else [])]))


def _is_made_an_alias(path: str, target: _Asked, net: _Asked) -> bool:
    """Whether a file gives the first of two names what another name holds, or one call or literal the same name twice."""
    tree = _tree(path)
    if tree is None:
        return False
    one, other = _short(target), _short(net)
    if target.module is not net.module and type(target.module) is type(net.module):
        return True  # copy.copy: another object with the same parameters
    is_attribute = "." in target.name
    return any(_makes_alias(each, {one, other}, one, is_attribute=is_attribute) for each in ast.walk(tree))


def _short(asked: _Asked) -> str:
    return asked.name.rpartition(".")[2].rpartition("[")[2].strip("]'\"")


def _makes_alias(node: ast.AST, both: set[str], one: str, *, is_attribute: bool) -> bool:
    if isinstance(node, ast.Assign):
        names = [_last(each) for each in node.targets]
        if one in names and len(node.targets) > 1:
            return True
        pairs = [pair for each in node.targets for pair in _pairs(each, node.value)]
        return any(_last(left) in both and _last(right) not in (None, _last(left)) for left, right in pairs)
    if isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        return _last(node.target) in both and _last(node.value) not in (None, _last(node.target))
    if isinstance(node, ast.Dict):
        keys = [each.value for each in node.keys if isinstance(each, ast.Constant)]
        return one in keys and _has_twice(node.values)
    if isinstance(node, ast.Call):
        keywords = [each.arg for each in node.keywords]
        is_given = one in keywords if keywords else is_attribute
        return is_given and _has_twice([*node.args, *(each.value for each in node.keywords)])
    return False


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        yield from zip(target.elts, value.elts, strict=True)
    else:
        yield target, value


def _has_twice(values: list[ast.expr]) -> bool:
    written = [ast.unparse(each) for each in values if isinstance(each, ast.Name)]
    return len(written) > len(set(written))


_SAID = (
    "{target}, which the loss asks without a gradient, is the network that {net} is: both names stand for the same weights, so "
    "{target} changes with each update and never lags behind. For a target network make a copy before the loop, {short} = "
    "copy.deepcopy({net}.module) of a learner, and run.track({short}={short}); if one network is meant, call it by one name"
)
