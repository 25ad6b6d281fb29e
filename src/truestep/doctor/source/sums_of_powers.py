# SPDX-License-Identifier: Apache-2.0
"""A formula as a sum of powers: `1 + 2 * logstd - mean**2 - exp(logstd)` is four of them."""

import ast
from dataclasses import dataclass, field

from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.resolving import MAX_DEPTH
from truestep.doctor.source.terms import value_here
from truestep.doctor.source.values import constant

_ADDS = {"add": 1, "add_": 1, "sub": -1, "sub_": -1}
_EXPONENTIAL = "exp({})"


@dataclass
class Power:
    """A number times powers of symbols; `exp(x)` is the symbol `exp(x)`, and `log(s)` is one to the power 1."""

    factor: float = 1.0
    bases: dict[str, float] = field(default_factory=dict)

    def is_logarithm_of(self) -> str | None:
        """Return s where this is a number times log(s), or x where it may be: then s is `exp(x)`."""
        if len(self.bases) != 1 or next(iter(self.bases.values())) != 1:
            return None
        symbol = next(iter(self.bases))
        return symbol[4:-1] if symbol.startswith("log(") else _EXPONENTIAL.format(symbol)

    def times(self, other: "Power", power: float = 1) -> "Power":
        """Return the product with a power of another."""
        bases = dict(self.bases)
        for name, value in other.bases.items():
            bases[name] = bases.get(name, 0) + power * value
        return Power(
            self.factor * other.factor**power, {name: value for name, value in bases.items() if value}
        )


def powers_in(module: SourceModule, node: ast.expr, depth: int = 0) -> list[Power] | None:
    """Return the terms of a sum as powers; None where it is none."""
    if depth > 2 * MAX_DEPTH:
        return None
    match node:
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            sign = -1 if isinstance(node.op, ast.Sub) else 1
            return _joined(
                powers_in(module, node.left, depth + 1), powers_in(module, node.right, depth + 1), sign
            )
        case ast.UnaryOp(op=ast.USub()):
            return _joined([], powers_in(module, node.operand, depth + 1), -1)
        case ast.Call(func=ast.Attribute(attr=name), args=[given], keywords=[]) if name in _ADDS:
            inner = powers_in(module, node.func.value, depth + 1)  # type: ignore[attr-defined]
            return _joined(inner, powers_in(module, given, depth + 1), _ADDS[name])
        case ast.Call(func=ast.Attribute(attr="neg" | "neg_"), args=[]):
            return _joined([], powers_in(module, node.func.value, depth + 1), -1)  # type: ignore[attr-defined]
        case ast.Call(func=ast.Attribute(attr="mul" | "mul_"), args=[given]) if _number(given) is not None:
            return _joined([], powers_in(module, node.func.value, depth + 1), _number(given) or 0)  # type: ignore[attr-defined]
        case ast.BinOp(op=ast.Mult(), left=left, right=right) if _number(left) is not None:
            return _joined([], powers_in(module, right, depth + 1), _number(left) or 0)
        case ast.BinOp(op=ast.Div(), left=left, right=right) if _number(right):
            return _joined([], powers_in(module, left, depth + 1), 1 / (_number(right) or 1))
    return [_power(module, node, depth)]


def _joined(first: list[Power] | None, second: list[Power] | None, sign: float) -> list[Power] | None:
    if first is None or second is None:
        return None
    return [*first, *(Power(sign * each.factor, each.bases) for each in second)]


def _number(node: ast.expr) -> float | None:
    value = constant(node)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _power(module: SourceModule, node: ast.expr, depth: int) -> Power:
    """Return an expression without sums as one power; what can't be taken apart is a symbol."""
    if depth > 2 * MAX_DEPTH:
        return Power(1, {ast.unparse(node): 1})
    if (value := _number(node)) is not None:
        return Power(value)
    match node:
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            return _power(module, left, depth + 1).times(_power(module, right, depth + 1))
        case ast.BinOp(op=ast.Div(), left=left, right=right):
            return _power(module, left, depth + 1).times(_power(module, right, depth + 1), -1)
        case ast.UnaryOp(op=ast.USub()):
            return Power(-1).times(_power(module, node.operand, depth + 1))
        case ast.BinOp(op=ast.Pow(), left=left, right=right) if _number(right) is not None:
            return _raised(module, left, _number(right) or 0, depth)
        case ast.Call():
            return _called(module, node, depth)
        case ast.Name():
            given = value_here(module, node)
            if given is not None and _is_function(module, given):
                return _power(module, given, depth + 1)
    return Power(1, {ast.unparse(node): 1})


def _raised(module: SourceModule, node: ast.expr, exponent: float, depth: int) -> Power:
    inner = _power(module, node, depth + 1)
    return Power().times(inner, exponent) if inner.factor > 0 else Power(1, {ast.unparse(node): exponent})


def _is_function(module: SourceModule, node: ast.expr) -> bool:
    name, _ = _function(module, node)
    return name in ("exp", "log", "sqrt", "square", "pow")


def _function(module: SourceModule, node: ast.expr) -> tuple[str, list[ast.expr]]:
    """Return the name and arguments of `torch.exp(x)` and of `x.exp()`."""
    if not isinstance(node, ast.Call) or node.keywords:
        return "", []
    home, _, name = (module.qualify(node.func) or "").rpartition(".")
    if home in ("torch", "math", "numpy"):
        return name, list(node.args)
    if isinstance(node.func, ast.Attribute):
        return node.func.attr.rstrip("_"), [node.func.value, *node.args]
    return "", []


def _called(module: SourceModule, call: ast.Call, depth: int) -> Power:
    match _function(module, call):
        case ("exp", [given]):
            inner = _power(module, given, depth + 1)
            if len(inner.bases) == 1 and next(iter(inner.bases.values())) == 1:
                symbol = next(iter(inner.bases))
                base = symbol[4:-1] if symbol.startswith("log(") else _EXPONENTIAL.format(symbol)
                return Power(1, {base: inner.factor})
        case ("log", [given]):
            inner = _power(module, given, depth + 1)
            if inner.factor == 1 and len(inner.bases) == 1:
                base, exponent = next(iter(inner.bases.items()))
                is_exponential = base.startswith("exp(") and base.endswith(")")
                return Power(exponent, {base[4:-1] if is_exponential else f"log({base})": 1})
        case ("sqrt", [given]):
            return _raised(module, given, 0.5, depth)
        case ("square", [given]):
            return _raised(module, given, 2, depth)
        case ("pow", [given, exponent]) if _number(exponent) is not None:
            return _raised(module, given, _number(exponent) or 0, depth)
    return Power(1, {ast.unparse(call): 1})
