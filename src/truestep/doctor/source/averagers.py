# SPDX-License-Identifier: Apache-2.0
"""Classes that have torch's optimizer as their base and are none: they keep averages of weights, say, by its interface."""

import ast
from typing import TYPE_CHECKING

from truestep.doctor.source.names import Class

if TYPE_CHECKING:
    from truestep.doctor.source.module import SourceModule

_SWITCHES = ("no_grad", "enable_grad", "requires_grad", "zero_grad")


def reads_no_gradient(module: "SourceModule", owner: Class) -> bool:
    """Tell whether a class of the program has a step of its own that neither reads a gradient nor lets another step."""
    if module.method(owner, "step") is None:
        return False
    read = (each.attr for part in module.lineage(owner) for each in module.inside(part, ast.Attribute))
    return not any(
        attr == "step" or (attr.endswith(("grad", "grads")) and attr not in _SWITCHES) for attr in read
    )
