# SPDX-License-Identifier: Apache-2.0
"""Fitting a scaler on what is tested later."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk


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
    """

    code = "DATA013"
    words = ("train_test_split", ".mean(", ".std(")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report fit or fit_transform whose data reach a later split in the same scope."""
        for split in module.calls("sklearn.model_selection.train_test_split"):
            data = {dotted(each) for each in split.args} - {None}
            for call in module.method_calls("fit_transform", "fit"):
                earlier = call.lineno < split.lineno and module.scope(call) is module.scope(split)
                if earlier and _is_scaler(module, call) and _names(module, call) & data:
                    yield At(
                        call,
                        f"This is fitted on all data; line {split.lineno} splits off the test data only afterwards.",
                    )
        yield from _by_hand(module)


def _by_hand(module: SourceModule) -> Iterator[At]:
    """Report the first mean or std of what is cut, or of what it was computed from."""
    seen: set[str] = set()
    for call in sorted(module.method_calls("mean", "std"), key=lambda each: each.lineno):
        whole = dotted(call.func.value) if isinstance(call.func, ast.Attribute) else None
        if whole is None or whole in seen or not _normalises(module, call):
            continue
        if any(_is_split(module, name) for name in (whole, *_computed_from(module, whole))):
            seen.add(whole)
            yield At(
                call, f"The statistics of all of {whole}, its test part too, normalise the training part."
            )


def _computed_from(module: SourceModule, name: str) -> list[str]:
    return [
        target
        for each in module.all(ast.Assign)
        if isinstance(each.value, ast.BinOp) and (target := dotted(each.targets[0]))
        if any(isinstance(node, ast.Name) and node.id == name for node in walk(each.value))
    ]


def _is_split(module: SourceModule, name: str) -> bool:
    """Tell whether `x_train, x_test = x[:s], x[s:]` cuts this name in two."""
    cuts: dict[str, set[str]] = {"train": set(), "test": set()}
    for assignment in module.all(ast.Assign):
        target, value = assignment.targets[0], assignment.value
        both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        pairs = zip(target.elts, value.elts, strict=False) if both else [(target, value)]  # type: ignore[attr-defined]
        for part, cut in pairs:
            if (
                isinstance(cut, ast.Subscript)
                and isinstance(cut.slice, ast.Slice)
                and dotted(cut.value) == name
            ):
                side = "train" if "train" in ast.unparse(part).lower() else "test"
                cuts[side].add(ast.unparse(cut.slice))
    return any(f"{cut[1:]}:" in cuts["test"] for cut in cuts["train"] if cut.startswith(":"))


def _normalises(module: SourceModule, call: ast.Call) -> bool:
    """Tell whether the statistic is taken away from, or divides, something."""
    statement = module.statement(call)
    if isinstance(module.parents[call], ast.BinOp) and isinstance(module.parents[call].op, ast.Sub):  # type: ignore[attr-defined]
        return True
    name = dotted(statement.targets[0]) if isinstance(statement, ast.Assign) else None
    uses = module.reads(name) if name else []
    return any(
        isinstance(up := module.parents[use], ast.BinOp) and isinstance(up.op, ast.Sub | ast.Div)
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
    """Return the names of what is fitted, and of what the result is stored under."""
    statement = module.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return {dotted(each) for each in (*targets, *call.args)}
