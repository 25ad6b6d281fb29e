# SPDX-License-Identifier: Apache-2.0
"""Windows of one series that begin so near to each other that they share rows."""

import ast
from collections.abc import Iterator

from truestep.doctor.source.arguments import positional_parameters
from truestep.doctor.source.integer_values import whole_number
from truestep.doctor.source.memoized_walk import asked_once
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, last_part, walk
from truestep.doctor.source.value_origins import argument

Terms = dict[str, int]  # how often each part of a sum is in it; whole numbers are under ""


def overlapping_windows(module: SourceModule, parts: list[ast.AST]) -> Iterator[ast.AST]:
    """Yield the slices of a series behind examples of which neighbours share rows, among the parts of what they come from."""
    for each in parts:
        if isinstance(each, (ast.ListComp, ast.GeneratorExp)) and len(each.generators) == 1:
            yield from _slices_of_each_number(module, each.elt, each.generators[0])
        elif isinstance(each, ast.Name):
            for kept in module.method_calls("append"):
                loop = module.loop(kept)
                is_it = dotted_name(kept.func.value) == each.id and module.scope(kept) is module.scope(each)  # type: ignore[attr-defined]
                if is_it and kept.args and isinstance(loop, ast.For):
                    yield from _slices_of_each_number(module, kept.args[0], loop)
        elif isinstance(each, ast.Call):
            owner = module.classes.named(each.func)
            item = module.classes.method(owner, "__getitem__") if owner is not None else None
            if item is not None and len(positional_parameters(item)) == 1:
                yield from _overlapping_slices(
                    module,
                    module.home(item).inside(item, ast.Subscript),
                    positional_parameters(item)[0],
                    {"": 1},
                )
            elif _is_sliding_window(module, each):
                yield each


def _is_sliding_window(module: SourceModule, call: ast.Call) -> bool:
    """Tell a library's windows at each place: `x.unfold(0, 24, 1)`, `sliding_window_view(x, 24)`."""
    if last_part(call.func) == "unfold":
        return whole_number(module, argument(call, 2, "step")) == 1
    return last_part(call.func) == "sliding_window_view" and not isinstance(
        module.parents[call], ast.Subscript
    )


def _slices_of_each_number(
    module: SourceModule, made: ast.expr, loop: ast.For | ast.comprehension
) -> Iterator[ast.AST]:
    """Yield the slices from which one is made for each number of a range."""
    numbers = loop.iter
    if not isinstance(numbers, ast.Call) or last_part(numbers.func) not in ("range", "trange"):
        return
    step = sum_terms(module, numbers.args[2]) if len(numbers.args) == 3 else {"": 1}
    if isinstance(loop.target, ast.Name):
        slices = [each for each in walk(made) if isinstance(each, ast.Subscript)]
        named = [
            value for each in walk(made) if isinstance(each, ast.Name) for value in module.definitions(each)
        ]
        slices += [each for each in named if isinstance(each, ast.Subscript) and module.loop(each) is loop]
        yield from _overlapping_slices(module, slices, loop.target.id, step)


def _overlapping_slices(
    module: SourceModule, slices: list[ast.Subscript], index: str, step: Terms
) -> Iterator[ast.AST]:
    """Yield the slices that begin at an index and are longer than the step from one to the next."""
    for each in slices:
        rows = each.slice.elts[0] if isinstance(each.slice, ast.Tuple) and each.slice.elts else each.slice
        if (
            not isinstance(rows, ast.Slice)
            or rows.lower is None
            or rows.upper is None
            or rows.step is not None
        ):
            continue
        lower, upper = sum_terms(module.home(each), rows.lower), sum_terms(module.home(each), rows.upper)
        longer = _subtract_terms(_subtract_terms(upper, lower), step)
        known = longer.pop("", 0)  # a length that has a name alone is at least 2
        is_longer = all(count > 0 for count in longer.values()) and known >= (-1 if longer else 1)
        if lower.get(index) == 1 == upper.get(index) and is_longer:
            yield each


@asked_once({"something": 1})
def sum_terms(module: SourceModule, node: ast.expr, depth: int = 0) -> Terms:
    """Return a sum by its parts, through names that have one value."""
    match node:
        case ast.Constant(value=int() as number):
            return {"": number} if number else {}
        case ast.BinOp(op=ast.Add()):
            return _subtract_terms(
                sum_terms(module, node.left, depth), _subtract_terms({}, sum_terms(module, node.right, depth))
            )
        case ast.BinOp(op=ast.Sub()):
            return _subtract_terms(sum_terms(module, node.left, depth), sum_terms(module, node.right, depth))
        case ast.Name():
            bound = module.resolver.reaching(node)
            if len(bound) == 1 and bound[0].how == "assign" and bound[0].value is not None:
                return sum_terms(module, bound[0].value, depth + 1)
    return {ast.unparse(node): 1}


def _subtract_terms(one: Terms, other: Terms) -> Terms:
    found = {key: one.get(key, 0) - other.get(key, 0) for key in {**one, **other}}
    return {key: count for key, count in found.items() if count}
