# SPDX-License-Identifier: Apache-2.0
"""Fitting a scaler on what is tested later."""

import ast
import re
from collections.abc import Iterator
from typing import TypeGuard

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.once import each_once
from truestep.doctor.source.values import argument, constant

_TENSORS = functions("takes numbers over")
_HELD_OUT = re.compile(r"(^|_)(va|val|valid|validation|te|test|dev|held|holdout)(_|$)", re.IGNORECASE)

MAX_DEPTH = 5  # from what is split back to what was fitted


class StatisticsBeforeSplit(SourceCheck):
    """A scaler is fitted on all data before they are split into training and test.

    Why: the test data have shaped the training inputs: the measured quality is too good.

    Bad:
        from sklearn.model_selection import train_test_split
        from sklearn.preprocessing import StandardScaler

        X = StandardScaler().fit_transform(X)  # here
        train, test = train_test_split(X)

    Good:
        from sklearn.model_selection import train_test_split
        from sklearn.preprocessing import StandardScaler

        train, test = train_test_split(X)
        scaler = StandardScaler().fit(train)

    Fix: split first, fit on the training part alone, transform both.

    Evidence: 186 repositories, beds E, S, T: 18 true, 2 debatable, 0 false.
    """

    code = "DATA013"
    words = ("train_test_split", ".mean(", ".std(", "fit_transform", "random_split")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report fit or fit_transform whose data reach a later split in the same scope."""
        for split in module.calls(*functions("splits at random")):
            fitted = [call for each in split.args for call in _fitted_behind(module, each)]
            for call in dict.fromkeys(fitted):
                yield At(
                    call,
                    f"This is fitted on all data; line {split.lineno} splits off the test data only afterwards.",
                )
            data = {dotted(each) for each in split.args} - {None}
            for call in module.method_calls("fit_transform", "fit"):
                earlier = call.lineno < split.lineno and module.scope(call) is module.scope(split)
                is_of_split = earlier and _is_scaler(module, call) and bool(_names(module, call) & data)
                if is_of_split and not _is_done_again(module, call, split):
                    yield At(
                        call,
                        f"This is fitted on all data; line {split.lineno} splits off the test data only afterwards.",
                    )
        for call in module.method_calls("fit_transform", "random_split"):
            if _is_scaler(module, call) and any(
                _is_split(module, name) for name in _names(module, call) if name
            ):
                yield At(call, "This is fitted on all data, which are cut into two parts only afterwards.")
        yield from _by_hand(module)


def _is_done_again(module: SourceModule, fitted: ast.Call, split: ast.Call) -> bool:
    """Tell a fit whose whole statement stands below once more, with nothing between that reads its result: one mistake."""
    statement = module.statement(fitted)
    same = [
        each
        for call in module.method_calls("fit_transform", "fit")
        if fitted.lineno < call.lineno < split.lineno and module.scope(call) is module.scope(fitted)
        if ast.dump(each := module.statement(call)) == ast.dump(statement)
    ]
    if not same or not isinstance(statement, (ast.Assign, ast.Expr)):
        return False
    names = [dotted(each) for each in statement.targets] if isinstance(statement, ast.Assign) else []
    reads = [read for name in names if name is not None for read in module.reads(name)]
    return not any(statement.lineno < read.lineno < same[0].lineno for read in reads)


def _by_hand(module: SourceModule) -> Iterator[At]:
    """Report the first mean or std of what is cut, or of what it was computed from."""
    seen: set[str] = set()
    for call in sorted(module.method_calls("mean", "std"), key=lambda each: each.lineno):
        whole = dotted(call.func.value) if isinstance(call.func, ast.Attribute) else None
        if whole is None or whole in seen or not _is_over_rows(call) or not _normalises(module, call):
            continue
        if any(_is_split(module, name) for name in (whole, *_computed_from(module, whole))):
            seen.add(whole)
            yield At(
                call, f"The statistics of all of {whole}, its test part too, normalise the training part."
            )


def _is_over_rows(call: ast.Call) -> bool:
    """Tell a statistic that examples share from one of each example alone: `x.mean(axis=1)`."""
    axes = [argument(call, 0, "axis"), argument(call, 0, "dim")]
    numbers = [constant(each) for each in axes if each is not None]
    return not any(isinstance(each, int) and each != 0 for each in numbers)


def _computed_from(module: SourceModule, name: str) -> list[str]:
    return [
        target
        for each in module.all(ast.Assign)
        if _is_computed(module, each.value) and (target := dotted(each.targets[0]))
        if any(isinstance(node, ast.Name) and node.id == name for node in walk(each.value))
    ]


def _is_computed(module: SourceModule, value: ast.expr) -> bool:
    """Tell arithmetic, and `torch.tensor(x)`: the same numbers as a tensor."""
    return isinstance(value, ast.BinOp) or (
        isinstance(value, ast.Call) and module.qualify(value.func) in _TENSORS
    )


def _is_split(module: SourceModule, name: str) -> bool:
    """Tell whether `x_train, x_test = x[:s], x[s:]` cuts this name in two, or an index does whose parts take from it."""
    cuts = _cuts(module, name)
    if any(cut.startswith(":") and f"{cut[1:]}:" in cuts["test"] for cut in cuts["train"]):
        return True
    taken = {
        each.slice.id
        for each in module.all(ast.Subscript)
        if isinstance(each.slice, ast.Name) and dotted(each.value) == name
    }
    return any(first in taken and second in taken for first, second in _index_parts(module))


def _index_parts(module: SourceModule) -> Iterator[tuple[str, str]]:
    """Yield the names of `tr, va = idx[:n], idx[n:]`, the second of which is held out."""
    halves: dict[str, dict[str, str]] = {}
    for target, cut in _assignments(module):
        if (
            isinstance(target, ast.Name)
            and isinstance(cut, ast.Subscript)
            and isinstance(cut.slice, ast.Slice)
        ):
            halves.setdefault(ast.unparse(cut.value), {})[ast.unparse(cut.slice)] = target.id
    for parts in halves.values():
        for bounds, first in parts.items():
            second = parts.get(f"{bounds[1:]}:") if bounds.startswith(":") else None
            if second is not None and any(_HELD_OUT.search(each) for each in (first, second)):
                yield first, second


def _assignments(module: SourceModule) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target of an assignment with its value."""
    for assignment in module.all(ast.Assign):
        target, value = assignment.targets[0], assignment.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            yield from zip(target.elts, value.elts, strict=False)
        else:
            yield target, value


def _cuts(module: SourceModule, name: str) -> dict[str, set[str]]:
    """Return the slices of a name that are kept for training, and for anything else."""
    found: dict[str, set[str]] = {"train": set(), "test": set()}
    for part, cut in _assignments(module):
        if isinstance(cut, ast.Subscript) and isinstance(cut.slice, ast.Slice) and dotted(cut.value) == name:
            side = "train" if "train" in ast.unparse(part).lower() else "test"
            found[side].add(ast.unparse(cut.slice))
    return found


def _normalises(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether the statistic is taken away from, or divides, something."""
    statement = module.statement(call)
    if isinstance(module.parents[call], ast.BinOp) and isinstance(module.parents[call].op, ast.Sub):  # type: ignore[attr-defined]
        return True
    name = dotted(statement.targets[0]) if isinstance(statement, ast.Assign) else None
    uses = module.reads(name) if name else []
    return any(
        isinstance(up := module.parents[use], ast.BinOp) and isinstance(up.op, (ast.Sub, ast.Div))
        for use in uses
    )


def _is_scaler(module: SourceModule, call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Attribute)
    for each in (call.func.value, *module.definitions(call.func.value)):
        name = module.qualify(each.func) if isinstance(each, ast.Call) else None
        if name and name.startswith("sklearn.preprocessing.") and "Label" not in name:
            return True
    return False


def _names(module: SourceModule, call: ast.Call) -> set[str | None]:
    """Return the names of what is fitted, of what the result is stored under, and of what is transformed by it."""
    statement = module.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    scaler = dotted(call.func.value) if isinstance(call.func, ast.Attribute) else None
    turned = [each for each in module.method_calls("transform") if dotted(each.func.value) == scaler]  # type: ignore[attr-defined]
    later = [module.statement(each) for each in turned if scaler is not None and _is_of_fitted(each, call)]
    targets = [*targets, *(name for each in later if isinstance(each, ast.Assign) for name in each.targets)]
    return {
        dotted(each.value if isinstance(each, ast.Subscript) else each) for each in (*targets, *call.args)
    }


def _is_of_fitted(turned: ast.Call, fitted: ast.Call) -> bool:
    """Tell `scaler.transform(x)` after `scaler.fit(x)`: of the same data."""
    given = [[ast.dump(each) for each in call.args[:1]] for call in (turned, fitted)]
    return given[0] == given[1]


def _fitted_behind(module: SourceModule, node: ast.expr) -> list[ast.Call]:
    """Return each `scaler.fit_transform(...)` that a value comes from, through names, data sets and functions."""

    def behind(value: ast.expr) -> list[ast.expr]:
        return [made for part in walk(value) for made in _made_by(module, part) if made is not None]

    parts = [part for value in each_once([node], behind, MAX_DEPTH - 1) for part in walk(value)]
    return [each for each in parts if _is_fit_transform(each) and _is_scaler(module, each)]


def _is_fit_transform(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "fit_transform"


def _made_by(module: SourceModule, part: ast.AST) -> list[ast.expr | None]:
    """Return what a name stands for, and what a call of a function of the program gives."""
    if isinstance(part, ast.Name):
        return module.definitions(part)
    function = (
        module.functions.target(part) if isinstance(part, ast.Call) and not _is_fit_transform(part) else None
    )
    return [*module.functions.results(function)] if function is not None else []
