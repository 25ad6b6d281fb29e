# SPDX-License-Identifier: Apache-2.0
"""`a or b and loader`."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted
from truestep.doctor.source.uses import arms, places_read


class GuardOfOneAlternative(SourceCheck):
    """A test makes sure that something is there, but on one of its alternatives only.

    Why: `and` binds tighter than `or`: on the other alternatives the body runs without it.

    Bad:
        test_loader = None
        for epoch in range(9):
            if test_loader and epoch % 3 == 0 or epoch == 8:  # here
                evaluate(net, test_loader)

    Good:
        test_loader = None
        for epoch in range(9):
            if test_loader and (epoch % 3 == 0 or epoch == 8):
                evaluate(net, test_loader)

    Fix: put the alternatives in brackets.
    """

    code = "VALUE008"
    words = (" or ",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report `A or B and x` where x alone is a test, A does not ask for it, and the body uses it."""
        for node in module.all(ast.If) if "torch" in module.text else ():
            test, body, _ = arms(node)
            if not (isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or)):
                continue
            for place, others in _asked_in_one(module, test):
                used = any(_uses(module, node, read) for each in body for read in places_read(each, place))
                if used and not any(places_read(each, place) for each in others):
                    yield At(
                        node,
                        f"{place!r} is asked for in one alternative only, and the body uses it.",
                        RISK,
                    )


def _is_in_brackets(module: SourceModule, part: ast.expr) -> bool:
    """Tell `a or (b and c)`: whoever writes the brackets means them."""
    lines = module.home(part).text.encode().splitlines()
    assert part.end_lineno is not None
    before = [*lines[: part.lineno - 1], lines[part.lineno - 1][: part.col_offset]]
    after = [lines[part.end_lineno - 1][part.end_col_offset :], *lines[part.end_lineno :]]
    opens = b"\n".join(before).rstrip().endswith(b"(")
    return opens and b"\n".join(after).lstrip().startswith(b")")


def _uses(module: SourceModule, outer: ast.If, read: ast.expr) -> bool:
    """Tell a use of what may be absent from a test of it, and from what a test of its own guards."""
    place = dotted(read) or ""
    for above in module.ancestors(read):
        if above is outer:
            break
        asks = isinstance(above, ast.If | ast.IfExp | ast.While) and places_read(above.test, place)
        if asks or isinstance(above, ast.BoolOp | ast.Assert):
            return False
    return True


def _asked_in_one(module: SourceModule, test: ast.BoolOp) -> Iterator[tuple[str, list[ast.expr]]]:
    """Yield (place, the other alternatives) for what one alternative asks for."""
    for each in test.values:
        if isinstance(each, ast.BoolOp) and not _is_in_brackets(module, each):
            for part in each.values:
                if (place := dotted(part)) is not None:
                    yield place, [other for other in test.values if other is not each]
