# SPDX-License-Identifier: Apache-2.0
"""Any function of the gradients."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from truestep.core.errors import OptionError
from truestep.engine.clipping.base import Clip, Gradients


@dataclass(frozen=True)
class ClipFunction(Clip):
    """Hand the gradients to a function: it gets {parameter name: gradient} and changes them in place.

    It must not ask for values on the host (`.item()`, `if tensor > 0`) on a GPU, or each update waits for the device.
    """

    function: Callable[[dict[str, Tensor]], object]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise OptionError(f"ClipFunction needs a function of {{name: gradient}}, got {self.function!r}.")

    def apply(self, gradients: Gradients, norm: Tensor) -> None:
        """Call the function; one that returns other tensors has clipped nothing, and is refused."""
        try:
            returned: object = self.function(dict(zip(gradients.names, gradients.tensors, strict=True)))
        except Exception as error:
            error.add_note(
                "truestep: raised by the function given as clip=, which gets {parameter name: gradient} and changes the gradients "
                "in place: for gradient in gradients.values(): gradient.mul_(0.5). For torch.nn.utils.clip_grad_norm_ write "
                "clip=ts.ClipNorm(1.0), for clip_grad_value_ ts.ClipValue(1.0)."
            )
            raise
        if isinstance(returned, Mapping) and not {id(each) for each in returned.values()} <= {
            id(each) for each in gradients.tensors
        }:
            raise OptionError(
                "The clip function returned a dict of new tensors, which nobody uses. Change the gradients in place: "
                "gradient.mul_(0.5), gradient.copy_(new)."
            )
