# SPDX-License-Identifier: Apache-2.0
"""The length of a dict of loaders."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.values import constant

_SPLITS = {"train", "training", "val", "valid", "validation", "dev", "test", "eval"}
_GOES_THROUGH = {"enumerate", "tqdm", "iter", "trange", "zip", "cycle", "track"}


class SplitsCountedAsBatches(SourceCheck):
    """A figure is divided by the length of a dict of loaders, one of which the loop goes through.

    Why: that length is the number of splits, 2 or 3, and not of batches: a mean, or a share of the epoch, is wrong by their ratio.

    Bad:
        loaders = {"train": DataLoader(train_set, shuffle=True), "valid": DataLoader(valid_set)}
        total = 0.0
        for x, y in loaders["valid"]:
            total += F.l1_loss(net(x), y).item()
        mean = total / len(loaders)  # here

    Good:
        loaders = {"train": DataLoader(train_set, shuffle=True), "valid": DataLoader(valid_set)}
        total = 0.0
        for x, y in loaders["valid"]:
            total += F.l1_loss(net(x), y).item()
        mean = total / len(loaders["valid"])

    Fix: take the length of the loader that the loop goes through.
    """

    code = "EVAL063"
    words = ("len(",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report len(d) in a quotient or a product, in a function whose loop goes through d["train"]."""
        for call in module.calls("len") if "torch" in module.text else ():
            place = dotted(call.args[0]) if len(call.args) == 1 else None
            above = module.parents[call]
            divides = isinstance(above, ast.BinOp | ast.AugAssign) and isinstance(
                above.op, ast.Div | ast.Mult | ast.FloorDiv | ast.Mod
            )
            if place is not None and divides and (split := _split_of(module, call, place)) is not None:
                text = f"This is the number of splits in {place!r}; the loop goes through its {split!r}."
                yield At(call, text, RISK)


def _split_of(module: SourceModule, call: ast.Call, place: str) -> str | None:
    """Return the key of the split that a loop of this function goes through."""
    for node in module.directly_in(module.scope(call), ast.Subscript):
        key = constant(node.slice)
        if (
            isinstance(key, str)
            and key in _SPLITS
            and dotted(node.value) == place
            and _is_iterated(module, node)
        ):
            return key
    return None


def _is_iterated(module: SourceModule, node: ast.Subscript) -> bool:
    above = module.parents[node]
    while isinstance(above, ast.Call) and (dotted(above.func) or "").rpartition(".")[2] in _GOES_THROUGH:
        above = module.parents[above]
        if isinstance(above, ast.withitem):
            return True
    return isinstance(above, ast.For) and node is not above.target
