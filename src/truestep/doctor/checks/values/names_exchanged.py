# SPDX-License-Identifier: Apache-2.0
"""Two values under one another's names."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.arguments import argument_for, positional_parameters
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function
from truestep.doctor.source.signatures import own_name

_SHORT = 2  # names of that length (x, h, w) are too free to say anything
# pairs whose exchange is an operation of its own: a transposed matrix, a reversed graph, a turned image
_TURNED = frozenset((
    "row", "col", "rows", "cols", "width", "height", "src", "dst", "tgt", "source", "target", "head", "tail", "in", "out",
    "input", "output", "inputs", "outputs", "left", "right", "up", "down", "encoder", "decoder", "forward", "backward",
))  # fmt: skip

_PREDICTED = frozenset(
    (
        "pred",
        "preds",
        "prediction",
        "predictions",
        "logit",
        "logits",
        "output",
        "outputs",
        "out",
        "hat",
        "score",
        "scores",
        "predicted",
    )
)
_TRUE = frozenset(("true", "label", "labels", "target", "targets", "gt", "truth", "y"))


class NamesExchanged(SourceCheck):
    """A call gives two values in the other order than the function takes them, or takes two results so.

    Why: each is used as the other, and where both have one shape nothing fails.

    Bad:
        def split(rows):
            return rows[:80], rows[80:]

        def loaders(train_rows, test_rows):
            return DataLoader(train_rows, shuffle=True), DataLoader(test_rows)

        train_rows, test_rows = split(dataset)
        pair = loaders(test_rows, train_rows)  # here

    Good:
        def split(rows):
            return rows[:80], rows[80:]

        def loaders(train_rows, test_rows):
            return DataLoader(train_rows, shuffle=True), DataLoader(test_rows)

        train_rows, test_rows = split(dataset)
        pair = loaders(train_rows, test_rows)

    Fix: exchange them, or give them by name.

    Evidence: 186 repositories, beds B, D, F, H, P, R, T, V, X: 9 true, 3 debatable, 4 false.
    """

    code = "VALUE012"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report two arguments that each have the other's parameter's name, and two results taken so."""
        if "torch" not in module.text:
            return
        for call in module.all(ast.Call):
            names = [own_name(each) for each in call.args]
            function = module.functions.called(call) if len(_names_long_enough(names)) > 1 else None
            if function is not None and not _is_recursive_call(module, call, function):
                pair = _swapped_names(names, positional_parameters(function))
                if (
                    pair is not None
                    and not _is_called_both_ways(module, call, pair)
                    and not _is_exchanged_by_callers(module, call, pair)
                    and not _is_exchanged_in_callee(module, function, pair)
                ):
                    first, second = pair
                    text = f"{first!r} is given where {second!r} is taken, and {second!r} where {first!r} is."
                    yield At(call, text, RISK)
        for node in module.all(ast.Assign):
            pair = _names_unpacked_exchanged(module, node)
            if pair is not None:
                first, second = pair
                yield At(
                    node, f"{first!r} takes what is returned as {second!r}, and {second!r} {first!r}.", RISK
                )


def _names_long_enough(names: list[str | None]) -> list[str]:
    return [each for each in names if each is not None and len(each) > _SHORT]


def _swapped_names(given: list[str | None], taken: list[str]) -> tuple[str, str] | None:
    """Return two names that stand at one another's places."""
    taken = [each.strip("_") for each in taken]
    for first in range(min(len(given), len(taken))):
        for second in range(first + 1, min(len(given), len(taken))):
            one, other = given[first], given[second]
            if one is None or other is None or one == other or _is_mirrored_name_pair(one, other):
                continue
            if min(len(one), len(other)) <= _SHORT:
                continue
            if one == taken[second] and other == taken[first]:
                return one, other
    return None


def _is_mirrored_name_pair(one: str, other: str) -> bool:
    """Tell two names that differ by such a pair, dim_in and dim_out, chin and chout: a decoder is its encoder's mirror."""
    differing = ({one[first:], other[first:]} for first in range(len(one)) if one[:first] == other[:first])
    return set(one.split("_")) ^ set(other.split("_")) <= _TURNED or any(
        ends <= _TURNED for ends in differing
    )


def _is_recursive_call(module: SourceModule, call: ast.Call, function: Function) -> bool:
    """A function that calls itself with two arguments exchanged means it."""
    return function in module.ancestors(call)


def _is_exchanged_by_callers(module: SourceModule, call: ast.Call, pair: tuple[str, str]) -> bool:
    """Tell two parameters that every caller in sight gives the other way round, by the words of what it gives: twice is right."""
    function = module.scope(call)
    if not isinstance(function, Function) or not set(pair) <= set(positional_parameters(function)):
        return False
    given = [
        [argument_for(function, each, name) for name in pair] for each in module.functions.callers(function)
    ]
    return bool(given) and all(
        _predicted_or_true(name) not in (None, _predicted_or_true(ast.unparse(each)))
        and _predicted_or_true(ast.unparse(each)) is not None
        for values in given
        for name, each in zip(pair, values, strict=True)
        if each is not None
    )


def _is_exchanged_in_callee(module: SourceModule, function: Function, pair: tuple[str, str]) -> bool:
    """Tell whether the function that is called hands the two on in the other order again."""
    home = module.home(function)
    for each in home.inside(function, ast.Call):
        inner = home.functions.called(each) if set(pair) <= {own_name(given) for given in each.args} else None
        if inner is not None and _swapped_names(
            [own_name(given) for given in each.args], positional_parameters(inner)
        ):
            return True
    return False


def _predicted_or_true(text: str) -> str | None:
    """Return which side of a loss a text names: what is predicted, or what is true."""
    if text.endswith(")"):
        return "predicted"
    words = set(re.split(r"[^a-z]+", text.lower()))
    return "predicted" if words & _PREDICTED else "true" if words & _TRUE else None


def _is_called_both_ways(module: SourceModule, call: ast.Call, pair: tuple[str, str]) -> bool:
    """Tell whether the same function is called in the right order beside it: a symmetric pair of calls."""
    scope, text = module.scope(call), ast.unparse(call.func)
    for each in module.all(ast.Call):
        if each is not call and module.scope(each) is scope:
            names = [own_name(given) for given in each.args]
            if set(pair) <= set(names) and (
                ast.unparse(each.func) == text
                or (names.index(pair[1]) < names.index(pair[0]) and _are_network_parts(module, call, each))
            ):
                return True
    return False


def _are_network_parts(module: SourceModule, *calls: ast.Call) -> bool:
    """Tell two parts of a network, such as an encoder and the decoder that leads back to its input."""
    layers = module.kinds.classes_of("module")
    return all(module.classes.named(each.func) in layers for each in calls)


def _names_unpacked_exchanged(module: SourceModule, node: ast.Assign) -> tuple[str, str] | None:
    """Return two names of an unpacked call whose function returns them the other way round, on every way."""
    target = node.targets[0]
    if not (isinstance(target, ast.Tuple) and isinstance(node.value, ast.Call)):
        return None
    names = [own_name(each) for each in target.elts]
    function = module.functions.target(node.value) if len(_names_long_enough(names)) > 1 else None
    values = module.functions.results(function)
    rows = [[own_name(part) or "" for part in each.elts] for each in values if isinstance(each, ast.Tuple)]
    if not rows or len(rows) != len(values) or any(len(row) != len(names) for row in rows):
        return None
    pairs = {_swapped_names(names, row) for row in rows}
    pair = pairs.pop() if len(pairs) == 1 else None
    return None if pair is None or _are_only_joined(module, node, pair) else pair


def _are_only_joined(module: SourceModule, node: ast.Assign, pair: tuple[str, str]) -> bool:
    """Tell two lists of which only their sum is read: `songs + shows + apps`."""
    scope = module.scope(node)
    reads = [each for name in pair for each in module.reads(name) if module.scope(each) is scope]
    sums = {each: _outermost_sum(module, each) for each in reads}
    return len(reads) > 1 and all(
        whole is not None and set(pair) <= {part.id for part in ast.walk(whole) if isinstance(part, ast.Name)}
        for whole in sums.values()
    )


def _outermost_sum(module: SourceModule, node: ast.expr) -> ast.BinOp | None:
    found: ast.BinOp | None = None
    above = module.parents[node]
    while isinstance(above, ast.BinOp) and isinstance(above.op, ast.Add):
        found, above = above, module.parents[above]
    return found
