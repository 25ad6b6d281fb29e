# SPDX-License-Identifier: Apache-2.0
"""one_hot whose width depends on the batch."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.values import argument, forwards_all, value_origins


class OneHotWithoutClasses(SourceCheck):
    """one_hot is called without the number of classes.

    Why: the width is the batch's largest label plus one: it changes from batch to batch.

    Bad:
        t = F.one_hot(y).float()  # here

    Good:
        t = F.one_hot(y, num_classes=3).float()

    Fix: F.one_hot(y, num_classes=...).
    """

    code = "LOSS009"
    words = ("one_hot",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the call with one argument."""
        for call in module.calls("torch.nn.functional.one_hot"):
            if argument(call, 1, "num_classes") is not None or forwards_all(call):
                continue
            if not _has_all(module, argument(call, 0, "tensor")):
                yield At(call, "The width of this one_hot is the largest label of the batch plus one.", RISK)


def _has_all(module: SourceModule, labels: ast.expr | None) -> bool:
    """Tell labels that count up to the number of classes, as those of an episode: each of them is there."""
    origins = list(value_origins(module, labels)) if labels is not None else []
    called = [each for each in origins if isinstance(each, ast.Call)]
    targets = [module.target(each) for each in called]
    given = [
        part for function in targets if function is not None for part in module.resolver.results(function)
    ]
    made = [part for value in [*called, *given] for part in walk(value)]
    names = {(dotted(part.func) or "").rpartition(".")[2] for part in made if isinstance(part, ast.Call)}
    return bool(names & {"arange", "range"})
