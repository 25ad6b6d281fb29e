# SPDX-License-Identifier: Apache-2.0
"""Axes exchanged with view."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule


class ViewInsteadOfPermute(SourceCheck):
    """view or reshape is used to exchange axes.

    Why: it keeps the order of the numbers in memory and only cuts it elsewhere: the image is scrambled.

    Bad:
        chw = img.view(3, img.shape[0], img.shape[1])  # here

    Good:
        chw = img.permute(2, 0, 1)

    Fix: permute or transpose, then .contiguous() where a view is needed.

    Evidence: graykode/nlp-tutorial d05e31ec 4-3.Bi-LSTM(Attention)/Bi-LSTM(Attention).py:21.
    """

    code = "DATA006"
    words = ("view", "reshape")
    shows_as = ("DATA015",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a view of x whose sizes are x's own, in another order."""
        for call in module.method_calls("view", "reshape"):
            assert isinstance(call.func, ast.Attribute)
            base = ast.unparse(call.func.value)
            axes = [self._axis(each, base) for each in call.args]
            known = [(place, axis) for place, axis in enumerate(axes) if axis is not None]
            if len(known) >= 2 and len(call.args) >= 3 and any(place != axis for place, axis in known):
                order = [axis for _, axis in known]
                moved_by_one = (
                    all(place != axis for place, axis in known) and len(known) == len(call.args) - 1
                )
                if (
                    moved_by_one
                    and isinstance(call.args[0], ast.Constant)
                    and call.args[0].value in (3, 4)  # 1 is a new axis before the others
                ) or order != sorted(order):
                    yield At(
                        call,
                        f"The axes of {base} are exchanged with {call.func.attr}: its numbers are scrambled.",
                    )

    def _axis(self, node: ast.expr, base: str) -> int | None:
        text = ast.unparse(node)
        for start in (f"{base}.shape[", f"{base}.size("):
            if text.startswith(start) and text[len(start) : -1].isdigit():
                return int(text[len(start) : -1])
        return None
