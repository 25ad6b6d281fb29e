# SPDX-License-Identifier: Apache-2.0
"""MASTER_PORT as a constant."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule


class PortFixed(SourceCheck):
    """MASTER_PORT is set to a constant.

    Why: a second job on the machine finds the port taken (EADDRINUSE).

    Bad:
        os.environ["MASTER_PORT"] = "12355"  # here

    Good:
        port = os.environ["MASTER_PORT"]

    Fix: let torchrun set address and port.
    """

    code = "DIST012"
    words = ("MASTER_PORT",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a literal port."""
        for node in module.all(ast.Assign):
            pairs: list[tuple[ast.expr, ast.expr]] = []
            for target in node.targets:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs += zip(target.elts, node.value.elts, strict=False)
                else:
                    pairs.append((target, node.value))
            for target, value in pairs:
                if ast.unparse(target) == "os.environ['MASTER_PORT']" and isinstance(value, ast.Constant):
                    yield At(node, f"Port {value.value!r} is fixed: a second job finds it taken.", ADVICE)
