# SPDX-License-Identifier: Apache-2.0
"""Counting parameters through state_dict or children."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule


class ParametersCountedTwice(SourceCheck):
    """Parameters are counted over state_dict().

    Why: buffers are counted too, and tied weights twice.

    Bad:
        total = sum(v.numel() for v in net.state_dict().values())  # here

    Good:
        total = sum(p.numel() for p in net.parameters())

    Fix: sum over net.parameters(), which yields each once.
    """

    code = "PARAM010"
    words = ("numel",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a sum of numel() over state_dict(), or over the parameters of children."""
        for call in module.calls("sum"):
            generator = call.args[0] if call.args else None
            if not isinstance(generator, ast.GeneratorExp | ast.ListComp) or "numel" not in ast.unparse(
                generator.elt
            ):
                continue
            sources = " ".join(ast.unparse(each.iter) for each in generator.generators)
            if "state_dict()" in sources or (".children()" in sources and ".parameters()" in sources):
                yield At(call, "Buffers, or tied weights twice, are part of this count.", RISK)
