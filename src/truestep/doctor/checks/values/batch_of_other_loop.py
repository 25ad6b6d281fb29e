# SPDX-License-Identifier: Apache-2.0
"""A batch that another loop has left behind."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.uses import names_stored


class BatchOfOtherLoop(SourceCheck):
    """A loop uses the variable of an earlier loop, and leaves one of its own unused.

    Why: it works on the last batch of the other loop, the same in each turn; a metric says nothing about its own data.

    Bad:
        for xb, yb in loader:
            F.cross_entropy(net(xb), yb).backward()
        right = 0
        for xv, yv in loader:
            right += (net(xb).argmax(1) == yv).sum()  # here

    Good:
        for xb, yb in loader:
            F.cross_entropy(net(xb), yb).backward()
        right = 0
        for xv, yv in loader:
            right += (net(xv).argmax(1) == yv).sum()

    Fix: use the loop's own variable.
    """

    code = "VALUE021"
    words = ("for ",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a name that only earlier loops give a value, in a loop one of whose own names nothing reads."""
        for loop in module.all(ast.For) if "torch" in module.text else ():
            own = {each for each in names_stored(loop.target) if not each.startswith("_")}
            inside = [each for each in module.inside(loop, ast.Name) if isinstance(each.ctx, ast.Load)]
            unused = own - {each.id for each in inside}
            if len(own) < 2 or not unused or own == unused:
                continue
            for name in inside:
                if name.id not in own and _is_left_over(module, name, loop):
                    text = f"{name.id!r} is of an earlier loop; {min(unused)!r} of this one is not used."
                    yield At(name, text, RISK)
                    break


def _is_left_over(module: SourceModule, name: ast.Name, loop: ast.For) -> bool:
    """Tell whether the name is an argument here, and all that gives it a value are loops that are over."""
    if not isinstance(module.parents[name], ast.Call) or module.parents[name].func is name:  # type: ignore[attr-defined]
        return False
    bindings = module.bindings(name)
    loops = [module.enclosing(each.node, ast.For) for each in bindings if each.how == "for"]
    over = [each for each in loops if each is not None and (each.end_lineno or 0) < loop.lineno]
    several = all(len(names_stored(each.target)) > 1 for each in over)
    return bool(bindings) and len(over) == len(bindings) and several
