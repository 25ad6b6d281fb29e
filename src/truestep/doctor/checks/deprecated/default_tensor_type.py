# SPDX-License-Identifier: Apache-2.0
"""torch.set_default_tensor_type."""

from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, SourceRewriteError, name_of, replaced


class DefaultTensorType(SourceCheck):
    """torch.set_default_tensor_type() is called.

    Why: deprecated since 2.1; with a CUDA type it raises where there is no CUDA, and data loading on the
    CPU breaks.

    Bad:
        torch.set_default_tensor_type(torch.DoubleTensor)  # here

    Good:
        torch.set_default_dtype(torch.float64)

    Fix: torch.set_default_dtype and torch.set_default_device.

    Evidence: the plain form in snippet 16 of the notes; 186 repositories: said 27 times, not judged.
    """

    code = "OLD003"
    rewrites = "safe"
    words = ("set_default_tensor_type",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the call."""
        for call in module.calls("torch.set_default_tensor_type"):
            yield At(call, "set_default_tensor_type is deprecated.", ADVICE)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Name the type of the numbers."""
        name = module.qualify(node.args[0]) if node.args else None
        types = {
            "torch.FloatTensor": "float32",
            "torch.DoubleTensor": "float64",
            "torch.HalfTensor": "float16",
        }
        if name not in types:
            raise SourceRewriteError
        torch = name_of(module, "torch")
        return [replaced(module, node, f"{torch}.set_default_dtype({torch}.{types[name]})")]
