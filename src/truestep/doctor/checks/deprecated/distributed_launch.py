# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.launch."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule

LAUNCH = re.compile(r"torch\.distributed\.launch\b")


class DistributedLaunch(SourceCheck):
    """A script is started with torch.distributed.launch.

    Why: deprecated: it warns and passes --local-rank, which few scripts take.

    Bad:
        os.system("python -m torch.distributed.launch --nproc_per_node 2 train.py")  # here

    Good:
        os.system("torchrun --nproc-per-node 2 train.py")

    Fix: torchrun --nproc-per-node=N train.py.
    """

    code = "OLD004"
    words = ("distributed.launch",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it in strings and comments, once a line."""
        for number, line in enumerate(module.lines, 1):
            if LAUNCH.search(line):
                yield At(
                    ast.Pass(lineno=number, col_offset=0), "torch.distributed.launch is deprecated.", ADVICE
                )
