# SPDX-License-Identifier: Apache-2.0
"""--local_rank, which torchrun does not pass."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule


class LocalRankArgument(SourceCheck):
    """The local rank is read from a command-line argument.

    Why: torchrun passes none: the default (often 0, on every rank) is used; the old launcher spells it
    --local-rank.

    Bad:
        import argparse

        parser = argparse.ArgumentParser()
        parser.add_argument("--local_rank", default=0)  # here

    Good:
        local_rank = int(os.environ["LOCAL_RANK"])

    Fix: int(os.environ["LOCAL_RANK"]).
    """

    code = "DIST004"
    words = ("local_rank", "local-rank")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the argument in a file that never reads the variable."""
        if any(
            isinstance(node.value, str) and node.value == "LOCAL_RANK" for node in module.all(ast.Constant)
        ):
            return
        for call in module.method_calls("add_argument"):
            names = [each.value for each in call.args if isinstance(each, ast.Constant)]
            if any(name in ("--local_rank", "--local-rank") for name in names):
                yield At(call, "torchrun passes no such argument: the default is used on every rank.")
