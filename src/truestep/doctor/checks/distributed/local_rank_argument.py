# SPDX-License-Identifier: Apache-2.0
"""--local_rank, which torchrun does not pass."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import ADVICE, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.value_origins import argument, constant


class LocalRankArgument(SourceCheck):
    """The local rank is read from a command-line argument.

    Why: torchrun passes none: the default (often 0, on every rank) is used; the old launcher spells it
    --local-rank.

    Bad:
        import argparse

        parser = argparse.ArgumentParser()
        parser.add_argument("--local_rank", default=0)  # here
        torch.cuda.set_device(parser.parse_args().local_rank)

    Good:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))

    Fix: int(os.environ["LOCAL_RANK"]).

    Evidence: Project-MONAI/tutorials b3c6c998 deepedit/ignite/train.py:407; Project-MONAI/tutorials b3c6c998
    deepgrow/ignite/train.py:386; corpus, 186 repositories, beds B, C, D, F, G, H, I, K, L, M, N, O, P, Q: 19
    true, 21 debatable, 9 false.
    """

    code = "DIST004"
    words = ("local_rank", "local-rank")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the argument in a program that reads it, and never reads the variable."""
        if "LOCAL_RANK" in module.program.texts or "local_rank" not in module.program.identifiers:
            return
        if module.path.endswith(".ipynb"):  # no launcher starts one
            return
        for call in module.method_calls("add_argument"):
            names = [each.value for each in call.args if isinstance(each, ast.Constant)]
            required = constant(argument(call, None, "required")) is True  # then its absence is no secret
            if any(name in ("--local_rank", "--local-rank") for name in names) and not required:
                yield At(call, "torchrun passes no such argument: the default is used on every rank.", ADVICE)
