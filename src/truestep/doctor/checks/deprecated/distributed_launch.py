# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.launch."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.replacement import Edit
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, RewriteError

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
    rewrites = "safe"
    words = ("distributed.launch",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it in the strings of commands; what comments and docstrings say runs nothing."""
        for node in module.all(ast.Constant):
            spoken = isinstance(module.parents.get(node), ast.Expr)
            if isinstance(node.value, str) and not spoken and LAUNCH.search(node.value):
                yield At(node, "torch.distributed.launch is deprecated.", ADVICE)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Write torchrun in its place."""
        if node.lineno != node.end_lineno:
            raise RewriteError
        line = module.lines[node.lineno - 1]
        found = re.search(r"python3? -m torch\.distributed\.launch", line)
        if found is None:
            raise RewriteError
        return [Edit(node.lineno, found.start() + 1, node.lineno, found.end() + 1, "torchrun")]
