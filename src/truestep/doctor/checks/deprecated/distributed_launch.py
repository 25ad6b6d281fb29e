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
        """Report it in the strings of commands; what comments and docstrings say runs nothing."""
        for node in module.all(ast.Constant):
            spoken = isinstance(module.parents.get(node), ast.Expr)
            if isinstance(node.value, str) and not spoken and LAUNCH.search(node.value):
                yield At(node, "torch.distributed.launch is deprecated.", ADVICE)
