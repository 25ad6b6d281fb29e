# SPDX-License-Identifier: Apache-2.0
"""softmax that guesses its dimension."""

from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, with_keyword
from truestep.doctor.source.values import argument, forwards_all

FUNCTIONS = ("softmax", "log_softmax", "softmin")
LAYERS = ("Softmax", "LogSoftmax", "Softmin")


class SoftmaxWithoutDim(SourceCheck):
    """softmax is called without its dimension.

    Why: torch guesses (dimension 0 for 1-, 3-dimensional inputs: over the batch), and warns.

    Bad:
        p = F.softmax(net(x))  # here

    Good:
        p = F.softmax(net(x), dim=-1)

    Fix: say dim=-1 (or the dimension of the classes).

    Evidence: eriklindernoren/PyTorch-GAN 36d3c77e implementations/acgan/acgan.py:100;
    eriklindernoren/PyTorch-GAN 36d3c77e implementations/infogan/infogan.py:111; 186 repositories: said 26
    times, not judged.
    """

    code = "LOSS006"
    words = ("oftmax", "oftmin")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the function and the layer without dim."""
        for name in FUNCTIONS:
            for call in module.calls(f"torch.nn.functional.{name}"):
                if argument(call, 1, "dim") is None and not forwards_all(call):
                    yield At(
                        call, f"{name} without dim: of a 3-dimensional input it takes the batch.", ADVICE
                    )
        for name in LAYERS:
            for call in module.calls(f"torch.nn.{name}"):
                if argument(call, 0, "dim") is None and not forwards_all(call):
                    yield At(
                        call,
                        f"nn.{name} without dim: of a 3-dimensional input it takes the batch.",
                        ADVICE,
                    )

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Say the last dimension."""
        return [with_keyword(module, node, "dim", "-1")]
