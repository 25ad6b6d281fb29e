# SPDX-License-Identifier: Apache-2.0
"""Fitting a scaler on what is tested later."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted


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
    words = ("train_test_split",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report fit or fit_transform whose data reach a later split in the same scope."""
        for split in module.calls("sklearn.model_selection.train_test_split"):
            data = {dotted(each) for each in split.args} - {None}
            for call in module.method_calls("fit_transform", "fit"):
                earlier = call.lineno < split.lineno and module.scope(call) is module.scope(split)
                if earlier and _is_scaler(module, call) and _names(module, call) & data:
                    yield At(call, f"Fitted on all data, which line {split.lineno} splits afterwards.")


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
