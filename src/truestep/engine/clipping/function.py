# SPDX-License-Identifier: Apache-2.0
"""Any function of the gradients."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from truestep.engine.clipping.base import Clip, Gradients
from truestep.errors import OptionError


@dataclass(frozen=True)
class ClipFunction(Clip):
    """Hand the gradients to a function: it gets {parameter name: gradient} and changes them in place.

    It must not ask for values on the host (`.item()`, `if tensor > 0`) on a GPU, or each update waits for the device.
    """

    function: Callable[[dict[str, Tensor]], None]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise OptionError(f"ClipFunction needs a function of {{name: gradient}}, got {self.function!r}.")

    def apply(self, gradients: Gradients, norm: Tensor) -> None:
        """Call the function."""
        self.function(dict(zip(gradients.names, gradients.tensors, strict=True)))
