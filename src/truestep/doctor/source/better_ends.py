# SPDX-License-Identifier: Apache-2.0
"""Which end of a figure is the better one: a loss falls, an accuracy rises."""

import ast

from truestep.core.metric_direction import Better, best_mode_of_metric
from truestep.doctor.source.losses import loss_calls
from truestep.doctor.source.memoized_walk import asked_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import last_part
from truestep.doctor.source.value_origins import constant


@asked_once(None)
def better_end_of_figure(module: SourceModule, figure: ast.expr | None, depth: int = 0) -> Better | None:
    """Return which end of a figure is the better one: by its name, or by a loss or a count of equal labels that makes it."""
    match figure:
        case ast.Constant(value=str() as name):
            return best_mode_of_metric(name)
        case (
            ast.UnaryOp(op=ast.USub(), operand=inner)
            | ast.BinOp(left=ast.Constant(), op=ast.Sub(), right=inner)
        ):
            way = better_end_of_figure(module, inner, depth + 1)
            return None if way is None else "min" if way == "max" else "max"
        case ast.BinOp(left=inner, op=ast.Div()) | ast.BinOp(left=ast.Constant(), op=ast.Mult(), right=inner):
            return better_end_of_figure(module, inner, depth + 1)
        case ast.Name() | ast.Attribute() | ast.Subscript():
            key = constant(figure.slice) if isinstance(figure, ast.Subscript) else last_part(figure)
            ways = {better_end_of_figure(module, each, depth + 1) for each in module.definitions(figure)} - {
                None
            }
            return (
                ways.pop() if len(ways) == 1 else best_mode_of_metric(key) if isinstance(key, str) else None
            )
        case ast.Call() if figure in loss_calls(module):
            return "min"
        case (
            ast.Call(func=ast.Name(id="float"), args=[inner])
            | ast.Call(func=ast.Attribute(value=inner, attr="item" | "mean" | "sum" | "float"))
        ):
            return better_end_of_figure(module, inner, depth + 1)
        case ast.Compare(ops=[ast.Eq()]) | ast.Call(func=ast.Attribute(attr="eq")):
            return "max"
    return None
