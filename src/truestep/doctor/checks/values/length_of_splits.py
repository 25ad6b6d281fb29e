# SPDX-License-Identifier: Apache-2.0
"""The number of a dict's keys where the number of its batches is meant."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted


class LengthOfSplits(SourceCheck):
    """A count of batches or examples is compared with, or divided by, the length of the dict that holds the loaders.

    Why: len(loaders) counts its keys, "train" and "valid": a mean over batches, or a share of an epoch, is far too large.

    Bad:
        def trained(loaders, opt):
            total = 0.0
            for x, y in loaders["train"]:
                opt.zero_grad()
                loss = F.cross_entropy(net(x), y)
                loss.backward()
                opt.step()
                total += loss.item()
            return total / len(loaders)  # here

    Good:
        def trained(loaders, opt):
            total = 0.0
            for x, y in loaders["train"]:
                opt.zero_grad()
                loss = F.cross_entropy(net(x), y)
                loss.backward()
                opt.step()
                total += loss.item()
            return total / len(loaders["train"])

    Fix: len(loaders["train"]): of what the loop runs over.
    """

    code = "VALUE062"
    words = ("len(",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the length of what one function asks for a text key and loops over, as a divisor or in a comparison."""
        for call in module.all(ast.Call):
            if not (isinstance(call.func, ast.Name) and call.func.id == "len" and len(call.args) == 1):
                continue
            place = dotted(call.args[0])
            if place is None or not _is_counted_with(module, call):
                continue
            loops = [
                each
                for each in module.reads(place)
                if module.scope(each) is module.scope(call) and _is_looped(module, each)
            ]
            if loops:
                key = ast.unparse(module.parents[loops[0]])
                yield At(call, f"{place} is asked for keys: its length is their number, not that of {key}.")


def _is_counted_with(module: SourceModule, call: ast.Call) -> bool:
    """Tell a divisor, and a side of a division's comparison with a number that is no count of keys."""
    above = module.parents[call]
    return (
        isinstance(above, ast.BinOp) and isinstance(above.op, ast.Div | ast.FloorDiv) and above.right is call
    )


def _is_looped(module: SourceModule, node: ast.expr) -> bool:
    """Tell `loaders["train"]` that a loop runs over, with a bar or a count around it."""
    item = module.parents[node]
    if not (isinstance(item, ast.Subscript) and item.value is node and isinstance(item.slice, ast.Constant)):
        return False
    if not isinstance(item.slice.value, str):
        return False
    current: ast.AST = item
    while isinstance(module.parents[current], ast.Call) and current is not module.parents[current].func:  # type: ignore[attr-defined]
        current = module.parents[current]
    above = module.parents[current]
    if isinstance(above, ast.withitem):
        return isinstance(above.optional_vars, ast.Name)
    return isinstance(above, ast.For | ast.comprehension) and above.iter is current
