# SPDX-License-Identifier: Apache-2.0
"""A parameter picked by its number."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.value_origins import literal, resolve_expression

LAST_OF_FIRST_LAYERS = 3  # whoever takes one of the first parameters looks at what they are


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
            index = literal(module, node.slice)
            if type(index) is int and index > LAST_OF_FIRST_LAYERS and _lists_parameters(module, node.value):
                text = f"Parameter number {index} is another one as soon as the model changes."
                yield At(node, text, ADVICE)


def _lists_parameters(module: SourceModule, node: ast.expr) -> bool:
    """Tell `list(net.parameters())` and `[p for p in net.parameters()]`, be it under a name."""
    listed = resolve_expression(module, node)
    source: ast.expr | None = None
    if isinstance(listed, ast.Call) and module.qualify(listed.func) == "list" and listed.args:
        source = resolve_expression(module, listed.args[0])
    elif isinstance(listed, ast.ListComp) and len(listed.generators) == 1:
        source = listed.generators[0].iter
    method = source.func if isinstance(source, ast.Call) else None
    return isinstance(method, ast.Attribute) and method.attr in ("parameters", "named_parameters")
