# SPDX-License-Identifier: Apache-2.0
"""worker_init_fn that seeds with a constant."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.library.functions import functions
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.values import argument

SEEDS = functions("seeds the host")


class WorkersSeededAlike(SourceCheck):
    """worker_init_fn seeds each worker with the same number.

    Why: every worker then draws the same random numbers, and again the same in every epoch.

    Bad:
        def init(worker):
            np.random.seed(0)  # here

        loader = DataLoader(data, num_workers=2, worker_init_fn=init)

    Good:
        def init(worker):
            np.random.seed(torch.initial_seed() % 2**32)

        loader = DataLoader(data, num_workers=2, worker_init_fn=init)

    Fix: no worker_init_fn is needed for np.random, random and torch; else seed from torch.initial_seed().
    """

    code = "DATA004"
    words = ("worker_init_fn",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report its seed calls whose argument is constant, or depends on the worker only."""
        for loader in module.calls("torch.utils.data.DataLoader"):
            given = argument(loader, None, "worker_init_fn")
            function = module.function_named(given) if given is not None else None
            for call in walk(function) if function is not None else ():
                if isinstance(call, ast.Call) and module.qualify(call.func) in SEEDS and call.args:
                    names = {node.id for node in walk(call.args[0]) if isinstance(node, ast.Name)}
                    if isinstance(call.args[0], ast.Constant):
                        yield At(call, "Every worker is seeded with the same number.", BUG)
                    elif (
                        names and function is not None and names <= {each.arg for each in function.args.args}
                    ):
                        yield At(
                            call,
                            "The seed depends on the worker alone: every epoch repeats the same numbers.",
                            RISK,
                        )
