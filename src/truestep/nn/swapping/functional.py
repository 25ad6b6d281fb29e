# SPDX-License-Identifier: Apache-2.0
"""Calls of activation functions in a model's own code, found by reading it."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

# Where the function is not called as the kind is in lower case.
_NAMES: dict[type[nn.Module], str] = {nn.LeakyReLU: "leaky_relu"}


def function_names(kinds: tuple[type[nn.Module], ...]) -> frozenset[str]:
    """Return the functions that do what these kinds of modules do: relu and relu_ for nn.ReLU."""
    names = [_NAMES.get(kind, kind.__name__.lower()) for kind in kinds]
    return frozenset(name + end for name in names for end in ("", "_"))


def functional_uses(
    model: nn.Module, kinds: tuple[type[nn.Module], ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return where a model's code uses the functions of these kinds, and the classes whose code can't be read.

    Each use is "Net.forward (file:line)"; an attribute that holds such a function is "body.activation". Torch's own
    modules are not read: they are swapped as modules.
    """
    names = function_names(kinds)
    uses: dict[str, None] = {}
    unread: dict[str, None] = {}
    for path, module in model.named_modules():
        uses |= dict.fromkeys(_attributes(path, module, names))
        for kind in type(module).__mro__:
            if kind.__module__.split(".")[0] == "torch":
                continue
            for function in vars(kind).values():
                if isinstance(function, FunctionType) and names & set(function.__code__.co_names):
                    found = _calls(function, names)
                    unread |= {kind.__qualname__: None} if found is None else {}
                    uses |= dict.fromkeys(found or ())
    return tuple(uses), tuple(unread)


def _attributes(path: str, module: nn.Module, names: frozenset[str]) -> Iterator[str]:
    functions = [getattr(home, name) for home in (F, torch) for name in names if hasattr(home, name)]
    for name, value in vars(module).items():
        if any(value is function for function in functions) or (name == "nonlinearity" and value in names):
            yield f"{path}.{name}" if path else name


def _calls(function: FunctionType, names: frozenset[str]) -> list[str] | None:
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    own = function.__code__.co_varnames[:1]
    return [
        f"{function.__qualname__} ({inspect.getsourcefile(function)}:{first + node.lineno - 1})"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _is_one(node.func, names, own)
    ]


def _is_one(called: ast.expr, names: frozenset[str], own: tuple[Any, ...]) -> bool:
    if isinstance(called, ast.Name):
        return called.id in names
    if not isinstance(called, ast.Attribute) or called.attr not in names:
        return False
    holder = called.value
    while isinstance(holder, ast.Attribute):  # self.body.relu(x) is a module, which is swapped
        holder = holder.value
    return not (isinstance(holder, ast.Name) and holder.id in own)
