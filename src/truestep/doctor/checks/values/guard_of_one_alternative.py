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
            if epoch % 3 == 0 or epoch == 8 and test_loader:  # here
                evaluate(net, test_loader)

    Good:
        test_loader = None
        for epoch in range(9):
            if (epoch % 3 == 0 or epoch == 8) and test_loader:
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
            for place, others in _asked_in_one(test):
                used = any(places_read(each, place) for each in body)
                if used and not any(places_read(each, place) for each in others):
                    yield At(
                        node,
                        f"{place!r} is asked for in the last alternative only, and the body uses it.",
                        RISK,
                    )


def _asked_in_one(test: ast.BoolOp) -> Iterator[tuple[str, list[ast.expr]]]:
    """Yield (place, the other alternatives) for what one alternative asks for."""
    for each in test.values:
        if isinstance(each, ast.BoolOp):
            for part in each.values:
                if (place := dotted(part)) is not None:
                    yield place, [other for other in test.values if other is not each]
