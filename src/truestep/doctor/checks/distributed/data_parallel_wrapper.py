# SPDX-License-Identifier: Apache-2.0
"""nn.DataParallel."""

from collections.abc import Iterator

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule


class DataParallelWrapper(SourceCheck):
    """A model is wrapped in nn.DataParallel.

    Why: one process copies the model to every GPU in every step: slow, and batch norm keeps the first
    copy's statistics.

    Bad:
        net = nn.DataParallel(net)  # here

    Good:
        net = DDP(net)

    Fix: DistributedDataParallel with one process per GPU (torchrun), on one machine too.

    Evidence: the plain form in snippet 6 of the notes; 186 repositories: said 110 times, not judged.
    """

    code = "DIST009"
    words = ("DataParallel",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the wrapper."""
        for call in module.calls("torch.nn.parallel.DataParallel"):
            yield At(call, "DataParallel copies the model to every GPU in each step.", ADVICE)
