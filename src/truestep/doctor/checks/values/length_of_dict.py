# SPDX-License-Identifier: Apache-2.0
"""`len(loaders)` where `len(loaders["train"])` is meant."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.questions import mentions_torch
from truestep.doctor.source.values import constant

_PHASES = ("train", "training", "val", "valid", "validation", "dev", "test", "eval")


class LengthOfDict(SourceCheck):
    """A loop over one loader of a dict counts with the length of the dict.

    Why: that is the number of loaders, two or three, and not of batches: the mean, the progress or the schedule is wrong.

    Bad:
        loaders = {"train": loader, "test": loader}
        total = 0.0
        for x, y in loaders["train"]:
            total += F.cross_entropy(net(x), y).item()
        print(total / len(loaders))  # here

    Good:
        loaders = {"train": loader, "test": loader}
        total = 0.0
        for x, y in loaders["train"]:
            total += F.cross_entropy(net(x), y).item()
        print(total / len(loaders["train"]))

    Fix: ask the loader for its length.
    """

    code = "VALUE038"
    words = ("len(",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the length of a dict, in arithmetic, in a function that loops over one of its loaders."""
        if not module.of_program(mentions_torch):
            return
        for call in module.calls("len"):
            place = dotted(call.args[0]) if len(call.args) == 1 else None
            if place is None or not isinstance(module.parents[call], ast.BinOp | ast.Compare):
                continue
            parent = module.parents[call]
            if isinstance(parent, ast.Compare) and any(
                isinstance(each, ast.Constant) for each in walk(parent)
            ):
                continue
            if _is_looped_over(module, call, place):
                yield At(
                    call, f"{place} is a dict of loaders: its length is their number, not that of batches."
                )


def _is_looped_over(module: SourceModule, call: ast.Call, place: str) -> bool:
    scope = module.scope(call)
    parts = [
        each
        for each in module.inside(scope, ast.Subscript)
        if dotted(each.value) == place and constant(each.slice) in _PHASES
    ]
    return any(_loops(module, each) for each in parts)


def _loops(module: SourceModule, part: ast.Subscript) -> bool:
    """Tell whether a loop goes over a value, be it within enumerate(), or a bar that `with` opens."""
    for each in module.ancestors(part):
        if isinstance(each, ast.For):
            return any(inner is part for inner in walk(each.iter))
        if isinstance(each, ast.With):
            return any(inner is part for item in each.items for inner in walk(item.context_expr))
        if isinstance(each, ast.stmt):
            return False
    return False
