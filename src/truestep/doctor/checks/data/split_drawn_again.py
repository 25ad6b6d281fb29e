# SPDX-License-Identifier: Apache-2.0
"""A test part drawn anew."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, is_none
from truestep.doctor.source.values import argument, value_origins

_SPLITS = functions("splits at random")
_SEEDS = functions("seeds the host", "seeds everything")


class SplitDrawnAgain(SourceCheck):
    """A function that splits at random is called once for the training part and again for the test part.

    Why: the second call draws another split: most of its test part was trained on.

    Bad:
        from sklearn.model_selection import train_test_split

        def load():
            train, test = train_test_split(np.arange(100))
            return train, test

        train, _ = load()
        _, test = load()  # here

    Good:
        from sklearn.model_selection import train_test_split

        def load():
            train, test = train_test_split(np.arange(100))
            return train, test

        train, test = load()

    Fix: call it once; random_state= makes it draw the same split each time.

    Evidence: mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/077/main.py:12;
    mehilshah/Bug_Reproducibility_DL_Bugs 11b01d62 Bugs/077/original_code_snippet.py:2; bed Q: 0 true, 2 false.
    """

    code = "DATA032"
    words = ("train_test_split", "random_split")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a call that keeps the parts which another call of the same function throws away."""
        for call in module.calls(*_SPLITS):
            function = module.enclosing(call, ast.FunctionDef)
            if function is not None and not _is_seeded(module, call, function):
                yield from self._kept_elsewhere(module, function)

    def _kept_elsewhere(self, module: SourceModule, function: Function) -> Iterator[At]:
        uses = [(call, kept) for call in module.functions.callers(function) if (kept := _kept(module, call))]
        for index, (call, kept) in enumerate(uses):
            before = [each for _, each in uses[:index]]
            if any(len(each) == len(kept) and _complement(each, kept) for each in before):
                yield At(call, "This draws a new split: what it keeps was partly used by the other call.")


def _is_seeded(module: SourceModule, call: ast.Call, function: Function) -> bool:
    """Tell whether a split may be the same each time: by its own seed, whoever gives it, or by one set before it."""
    given = (argument(call, None, "random_state"), argument(call, None, "generator"))
    seeds = [made for each in given if each is not None for made in value_origins(module, each)]
    seeding = (module.qualify(each.func) for each in module.inside(function, ast.Call))
    return not all(map(is_none, seeds)) or any(each in _SEEDS for each in seeding)


def _kept(module: SourceModule, call: ast.Call) -> list[bool]:
    """Return which parts `a, _ = load()` keeps."""
    statement = module.parents.get(call)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    parts = target.elts if isinstance(target, ast.Tuple) else []
    return [not (isinstance(each, ast.Name) and each.id.startswith("_")) for each in parts]


def _complement(first: list[bool], second: list[bool]) -> bool:
    return any(first) and any(second) and not any(a and b for a, b in zip(first, second, strict=True))
