# SPDX-License-Identifier: Apache-2.0
"""A loop over items that works on the whole list."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.uses import names_read, names_stored

_PLAIN = ("len", "next", "print", "range", "enumerate", "zip")


class LoopOverUnusedItems(SourceCheck):
    """A loop goes through a list, and each iteration works on the whole list, never on the item.

    Why: every iteration computes the same; what was meant for each pair is computed over all.

    Bad:
        def feature_loss(fake_maps, real_maps):
            total = 0
            for fake_map, real_map in zip(fake_maps, real_maps):
                total = total + F.l1_loss(fake_maps, real_maps)  # here
            return total

    Good:
        def feature_loss(fake_maps, real_maps):
            total = 0
            for fake_map, real_map in zip(fake_maps, real_maps):
                total = total + F.l1_loss(fake_map, real_map)
            return total

    Fix: use the loop's own names.
    """

    code = "VALUE002"

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a call with the list itself in a loop that reads none of its items."""
        if "torch" not in module.text:
            return
        for loop in module.all(ast.For):
            lists, items = _gone_through(loop)
            read = frozenset[str]().union(*(names_read(each) for each in loop.body))
            if not lists or not items or items & read or any(each.startswith("_") for each in items):
                continue
            for call in (each for part in loop.body for each in walk(part)):
                if isinstance(call, ast.Call) and dotted(call.func) not in _PLAIN:
                    whole = [place for each in call.args if (place := dotted(each)) in lists]
                    if whole:
                        text = f"Each iteration is given {whole[0]!r} whole; {', '.join(sorted(items))} is not used."
                        yield At(call, text)
                        break


def _gone_through(loop: ast.For) -> tuple[set[str], frozenset[str]]:
    """Return the lists that a loop goes through, and the names of their items."""
    over, target = loop.iter, loop.target
    name = dotted(over.func) if isinstance(over, ast.Call) else None
    parts = over.args if isinstance(over, ast.Call) and name in ("zip", "enumerate") else [over]
    # with enumerate the number stands for the item as well: `xs[i]`, or `pick(xs, i)`
    return {place for each in parts if (place := dotted(each)) is not None}, names_stored(target)
