# SPDX-License-Identifier: Apache-2.0
"""A loss that asks one network under two names, once without a gradient: the target network of a `target = policy` never lags."""

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from inspect import isfunction, ismethod
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from truestep.core.call_site import closure_variables
from truestep.core.source_lookup import WrittenFunction, function_node, source_tree, unwrap_function
from truestep.engine.learner import Learner
from truestep.run.name_resolution import MISSING, SourceNameResolver, last_name

_DEEPEST = 3  # a loss that calls a function that calls one
_CUTS = ("no_grad", "inference_mode")


class _NetworkCall(NamedTuple):
    """A call of a network in a loss."""

    module: nn.Module
    name: str
    """What is written at the outermost place where it is named."""
    is_constant: bool
    """Whether no gradient goes through what it answers."""


def same_network_called_twice_text(loss: Callable[..., Any]) -> str | None:
    """Return what to say of a loss that asks one network by two names, one without a gradient; None where names were not made so.

    Two names are nobody's mistake by themselves: the second one has to be made by `target = policy` or the like.
    """
    asked = [*_network_calls_in_loss(loss)]
    for one in [each for each in asked if each.is_constant]:
        with_graph = [
            each
            for each in asked
            if not each.is_constant
            and each.name != one.name
            and _has_same_parameters(each.module, one.module)
        ]
        by_name = [each for each in asked if each.name == one.name]
        if not with_graph or not all(each.is_constant for each in by_name):
            continue
        if any(_is_alias_made_in_file(path, one, with_graph[0]) for path in _files_of_loss_and_main(loss)):
            return _SAID.format(target=one.name, net=with_graph[0].name, short=_last_name_part(one))
    return None


def _has_same_parameters(one: nn.Module, other: nn.Module) -> bool:
    first = [id(each) for each in one.parameters()]
    return bool(first) and first == [id(each) for each in other.parameters()]


def _network_calls_in_loss(loss: Any, depth: int = 0) -> Iterator[_NetworkCall]:
    if isinstance(loss, partial):
        names = {f"{number}": value for number, value in enumerate(loss.args)}
        yield from _network_calls_in_function(loss.func, {}, names, is_constant=False, depth=depth)
    else:
        yield from _network_calls_in_function(loss, {}, {}, is_constant=False, depth=depth)


def _network_calls_in_function(
    function: Any,
    given: Mapping[str, tuple[str, Any]],
    bound: Mapping[str, Any],
    *,
    is_constant: bool,
    depth: int,
) -> Iterator[_NetworkCall]:
    """Yield the calls of networks in a function whose arguments `given` are known, by parameter, as text and object."""
    owner = function.__self__ if ismethod(function) else None
    function = unwrap_function(function)
    node = function_node(function) if isfunction(function) and depth < _DEEPEST else None
    if node is None:
        return
    parameters = [each.arg for each in node.args.posonlyargs + node.args.args]
    names: dict[str, Any] = dict.fromkeys(parameters, MISSING)
    variables = closure_variables(function)
    names = {**variables.builtins, **variables.globals, **variables.nonlocals, **names}
    if owner is not None and parameters:
        names[parameters[0]] = owner
    names |= {parameters[int(at)]: value for at, value in bound.items() if int(at) < len(parameters)}
    texts = {name: text for name, (text, _) in given.items()}
    names |= {name: value for name, (_, value) in given.items()}
    reading = _FunctionReading(node, names, texts, is_constant or _has_no_grad_decorator(node))
    yield from reading.asked(depth)


class _FunctionReading:
    """One function: what its names stand for, and which of its calls have a gradient."""

    def __init__(
        self, node: WrittenFunction, names: dict[str, Any], texts: Mapping[str, str], is_constant: bool
    ) -> None:
        self._node, self._names, self._is_constant = node, SourceNameResolver(names, texts), is_constant
        self._parents = {inner: each for each in ast.walk(node) for inner in ast.iter_child_nodes(each)}

    def asked(self, depth: int) -> Iterator[_NetworkCall]:
        for call in [each for each in ast.walk(self._node) if isinstance(each, ast.Call)]:
            value = self._names.value(call.func)
            if isinstance(value, Learner | nn.Module):
                module = value.module if isinstance(value, Learner) else value
                if isinstance(module, nn.Module):
                    yield _NetworkCall(
                        module, self._names.text(call.func), self._is_without_gradient_at(call)
                    )
            elif isfunction(value) or ismethod(value):
                yield from _network_calls_in_function(
                    value,
                    self._call_arguments_by_parameter(call, value),
                    {},
                    is_constant=self._is_without_gradient_at(call),
                    depth=depth + 1,
                )

    def _call_arguments_by_parameter(self, call: ast.Call, function: Any) -> dict[str, tuple[str, Any]]:
        code = unwrap_function(function).__code__
        names = code.co_varnames[ismethod(function) : code.co_argcount]
        written = dict(zip(names, call.args, strict=False))
        written |= {each.arg: each.value for each in call.keywords if each.arg}
        known = {name: (self._names.text(each), self._names.value(each)) for name, each in written.items()}
        return {name: pair for name, pair in known.items() if isinstance(pair[1], Learner | nn.Module)}

    def _is_without_gradient_at(self, call: ast.Call) -> bool:
        if self._is_constant:
            return True
        node: ast.AST = call
        while (above := self._parents.get(node)) is not None:
            if isinstance(above, ast.Attribute) and above.attr in ("detach", "data"):
                return True
            if isinstance(above, ast.With) and any(
                _has_gradient_cutting_name(each.context_expr) for each in above.items
            ):
                return True
            if isinstance(above, ast.Assign) and all(map(self._is_detached_where_read, above.targets)):
                return True
            node = above
        return False

    def _is_detached_where_read(self, target: ast.expr) -> bool:
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


def _has_no_grad_decorator(node: WrittenFunction) -> bool:
    return isinstance(node, ast.FunctionDef) and any(map(_has_gradient_cutting_name, node.decorator_list))


def _has_gradient_cutting_name(node: ast.expr) -> bool:
    return any(
        isinstance(each, ast.Attribute | ast.Name) and last_name(each) in _CUTS for each in ast.walk(node)
    )


def _files_of_loss_and_main(loss: Any) -> list[str]:
    import __main__

    function = loss.func if isinstance(loss, partial) else loss
    function = function.__func__ if ismethod(function) else function
    files = [function.__code__.co_filename] if isfunction(function) else []
    main = getattr(__main__, "__file__", None)
    return list(dict.fromkeys([*files, *([str(Path(main))] if main else [])]))


def _is_alias_made_in_file(path: str, target: _NetworkCall, net: _NetworkCall) -> bool:
    """Whether a file gives the first of two names what another name holds, or one call or literal the same name twice."""
    tree = source_tree(path)
    if tree is None:
        return False
    one, other = _last_name_part(target), _last_name_part(net)
    if target.module is not net.module and type(target.module) is type(net.module):
        return True  # copy.copy: another object with the same parameters
    is_attribute = "." in target.name
    return any(
        _is_alias_assignment(each, {one, other}, one, is_attribute=is_attribute) for each in ast.walk(tree)
    )


def _last_name_part(asked: _NetworkCall) -> str:
    return asked.name.rpartition(".")[2].rpartition("[")[2].strip("]'\"")


def _is_alias_assignment(node: ast.AST, both: set[str], one: str, *, is_attribute: bool) -> bool:
    if isinstance(node, ast.Assign):
        names = [last_name(each) for each in node.targets]
        if one in names and len(node.targets) > 1:
            return True
        pairs = [pair for each in node.targets for pair in _pair_target_with_value(each, node.value)]
        return any(
            last_name(left) in both and last_name(right) not in (None, last_name(left))
            for left, right in pairs
        )
    if isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        return last_name(node.target) in both and last_name(node.value) not in (None, last_name(node.target))
    if isinstance(node, ast.Dict):
        keys = [each.value for each in node.keys if isinstance(each, ast.Constant)]
        return one in keys and _has_repeated_name(node.values)
    if isinstance(node, ast.Call):
        keywords = [each.arg for each in node.keywords]
        is_given = one in keywords if keywords else is_attribute
        return is_given and _has_repeated_name([*node.args, *(each.value for each in node.keywords)])
    return False


def _pair_target_with_value(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        yield from zip(target.elts, value.elts, strict=True)
    else:
        yield target, value


def _has_repeated_name(values: list[ast.expr]) -> bool:
    written = [ast.unparse(each) for each in values if isinstance(each, ast.Name)]
    return len(written) > len(set(written))


_SAID = (
    "{target}, which the loss asks without a gradient, is the network that {net} is: both names stand for the same weights, so "
    "{target} changes with each update and never lags behind. For a target network make a copy before the loop, {short} = "
    "copy.deepcopy({net}.module) of a learner, and run.track({short}={short}); if one network is meant, call it by one name"
)
