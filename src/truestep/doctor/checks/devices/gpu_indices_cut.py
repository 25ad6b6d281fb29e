# SPDX-License-Identifier: Apache-2.0
"""GPU numbers cut from nvidia-smi -L."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule


class GpuIndicesCut(SourceCheck):
    """GPU numbers are read as one character of `nvidia-smi -L`.

    Why: GPU 10 becomes 1.

    Bad:
        ids = os.popen("nvidia-smi -L | cut -d ' ' -f 2 | cut -c 1").read().split()  # here

    Good:
        ids = os.popen("nvidia-smi --query-gpu=index --format=csv,noheader").read().split()

    Fix: nvidia-smi --query-gpu=index --format=csv,noheader.
    """

    code = "DEV004"
    words = ("nvidia-smi",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a string with the listing and a cut of one character."""
        for node in module.all(ast.Constant):
            if (
                isinstance(node.value, str)
                and "nvidia-smi -L" in node.value
                and "cut -c 1" in node.value
                and "\n" not in node.value
            ):
                yield At(node, "One character of the listing: GPU 10 becomes 1.")
