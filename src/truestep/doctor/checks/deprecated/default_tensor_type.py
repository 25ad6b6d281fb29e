# SPDX-License-Identifier: Apache-2.0
"""torch.set_default_tensor_type."""

from collections.abc import Iterator

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule


class DefaultTensorType(SourceCheck):
    """torch.set_default_tensor_type() is called.

    Why: deprecated since 2.1; with a CUDA type it raises where there is no CUDA, and data loading on the
    CPU breaks.

    Bad:
        torch.set_default_tensor_type(torch.DoubleTensor)  # here

    Good:
        torch.set_default_dtype(torch.float64)

    Fix: torch.set_default_dtype and torch.set_default_device.
    """

    code = "OLD003"
    words = ("set_default_tensor_type",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the call."""
        for call in module.calls("torch.set_default_tensor_type"):
            yield At(call, "set_default_tensor_type is deprecated.", ADVICE)
