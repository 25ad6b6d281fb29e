# SPDX-License-Identifier: Apache-2.0
"""What decorators make of functions: which leave them as they are, and which run something of the program around them."""

import ast

from truestep.doctor.source.memoized_walk import answered_once
from truestep.doctor.source.names import Function, common_answer
from truestep.doctor.source.resolving import Resolver

Decorated = ast.FunctionDef | ast.AsyncFunctionDef
Decoration = tuple[Decorated, Decorated]  # the decorator, and the wrapper that it gives
# of these libraries: what is decorated does what it did
_TRANSPARENT = (
    "abc.", "beartype.", "click.", "contextlib.", "dataclasses.", "functools.", "hydra.", "jaxtyping.", "numba.", "numpy.",
    "overrides.", "pytest.", "torch.", "tqdm.", "typeguard.", "typer.", "typing.", "typing_extensions.", "wandb.",
    "warnings.",
)  # fmt: skip
_BUILTIN = ("staticmethod", "classmethod", "property")


def has_transparent_decorators(resolver: Resolver, function: Decorated) -> bool:
    """Tell whether each decorator of a function is one of a library that only wraps it, or one that is followed."""
    return all(
        _is_transparent_decorator(resolver, each) or wrapper_made_by(resolver, each) is not None
        for each in function.decorator_list
    )


def _is_transparent_decorator(resolver: Resolver, decorator: ast.expr) -> bool:
    made = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = resolver.names.qualify(made) or ""
    if name in _BUILTIN or name.startswith(_TRANSPARENT):
        return True
    return isinstance(made, ast.Attribute) and made.attr in ("setter", "getter", "deleter")


def wrapper_made_by(resolver: Resolver, decorator: ast.expr) -> Decoration | None:
    """Return the function of the program that a decorator is, and the one inside of it that stands for what is decorated.

    Of `@every(3)` it is the decorator that the call makes. None where that is not one function for certain, or where
    what is decorated goes elsewhere, too.
    """
    if isinstance(decorator, ast.Call):
        factory = resolver.functions.target(decorator)
        made = _only_inner_function(resolver, factory) if isinstance(factory, Decorated) else None
    else:
        named = resolver.functions.named(decorator)
        made = named if isinstance(named, Decorated) else None
    if made is None or len(made.args.args) != 1:
        return None
    wrapper = _only_inner_function(resolver, made)
    if wrapper is None or not _only_calls(resolver, made, wrapper):
        return None
    return made, wrapper


@answered_once
def decorations(resolver: Resolver, function: Function) -> list[Decoration]:
    """Return what decorators of the program put around a function, outermost first."""
    made = [wrapper_made_by(resolver, each) for each in getattr(function, "decorator_list", ())]
    return [each for each in made if each is not None]


def calls_parameter(resolver: Resolver, call: ast.Call, made: Function) -> bool:
    """Tell whether a call runs what a decorator was given."""
    if not isinstance(call.func, ast.Name) or isinstance(made, ast.Lambda):
        return False
    bindings = resolver.names.bindings(call.func)
    return len(bindings) == 1 and bindings[0].parameter_of is made


def _only_inner_function(resolver: Resolver, function: Decorated) -> Decorated | None:
    """Return the function defined in another that is all it returns."""
    only = common_answer(map(resolver.functions.named, resolver.functions.results(function)))
    return only if isinstance(only, Decorated) and resolver.index.scope_of[only] is function else None


def _only_calls(resolver: Resolver, made: Decorated, wrapper: Decorated) -> bool:
    """Tell whether a decorator does nothing with what it is given but call it, or hand it to `wraps`."""
    name, parents = made.args.args[0].arg, resolver.index.parents
    for node in ast.walk(made):
        if not isinstance(node, ast.Name) or node.id != name:
            continue
        parent = parents[node]
        is_call = isinstance(parent, ast.Call) and parent.func is node
        is_kept = isinstance(parent, ast.Call) and resolver.names.qualify(parent.func) == "functools.wraps"
        if not is_call and not is_kept and not isinstance(parent, ast.Attribute):
            return False
    return all(not isinstance(each, (ast.Yield, ast.YieldFrom)) for each in ast.walk(wrapper))


@answered_once
def wrappers_of(resolver: Resolver) -> dict[Function, list[Decorated]]:
    """Return the functions that decorators of the program put around others, each with those it stands for."""
    found: dict[Function, list[Decorated]] = {}
    for function in [each for each in resolver.index.names if isinstance(each, Decorated)]:
        for _, wrapper in decorations(resolver, function):
            found.setdefault(wrapper, []).append(function)
    return found
