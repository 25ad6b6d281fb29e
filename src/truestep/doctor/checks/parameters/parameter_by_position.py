# SPDX-License-Identifier: Apache-2.0
"""A parameter picked by its number."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import seen_through


class ParameterByPosition(SourceCheck):
    """A parameter is picked by its position in list(net.named_parameters()).

    Why: one more layer and it is another parameter, or IndexError in a smaller net.

    Bad:
        name, p = list(net.named_parameters())[28]  # here

    Good:
        p = net.get_parameter("0.weight")

    Fix: net.get_parameter("name"), or the layer's own attribute.

    Evidence: the plain form in snippet 19 of the notes.
    """

    code = "PARAM009"
    words = ("arameters()",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a literal index above 3 into the listed parameters of a module."""
        for node in module.all(ast.Subscript):
            index = node.slice.value if isinstance(node.slice, ast.Constant) else None
            listed = node.value
            if (
                isinstance(index, int)
                and index > 3
                and isinstance(listed, ast.Call)
                and module.qualify(listed.func) == "list"
                and listed.args
            ):
                inner = seen_through(module, listed.args[0])
                if (
                    isinstance(inner, ast.Call)
                    and isinstance(inner.func, ast.Attribute)
                    and inner.func.attr in ("parameters", "named_parameters")
                ):
                    yield At(
                        node, f"Parameter number {index} is another one as soon as the model changes.", ADVICE
                    )
