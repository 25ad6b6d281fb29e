# SPDX-License-Identifier: Apache-2.0
"""A DistributedSampler without set_epoch."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, constant, forwards_all


class EpochNotSet(SourceCheck):
    """A DistributedSampler shuffles, but set_epoch() is never called.

    Why: the order is a function of seed and epoch; without set_epoch every epoch has the same order.

    Bad:
        sampler = DistributedSampler(data)  # here
        loader = DataLoader(data, batch_size=8, sampler=sampler)
        for epoch in range(10):
            for x, y in loader:
                train(x, y)

    Good:
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_size=8, sampler=sampler)
        for epoch in range(10):
            sampler.set_epoch(epoch)
            for x, y in loader:
                train(x, y)

    Fix: sampler.set_epoch(epoch) at the start of each epoch.
    """

    code = "DIST001"
    words = ("DistributedSampler",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a shuffling sampler in a file with loops and no set_epoch."""
        if module.method_calls("set_epoch", "prepare") or not module.all(ast.For, ast.While):
            return
        for call in module.calls("torch.utils.data.DistributedSampler"):
            evaluates = any(
                word in ast.unparse(module.statement(call)).lower() for word in ("val", "test", "eval")
            )
            if (
                constant(argument(call, 3, "shuffle")) is not False
                and not forwards_all(call)
                and not evaluates
            ):
                if module.calls("torch.utils.data.DataLoader"):
                    yield At(call, "set_epoch() is never called: every epoch has the same order.")
