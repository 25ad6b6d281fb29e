# SPDX-License-Identifier: Apache-2.0
"""Every rank reads all the data."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import BUG, RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.ranks import depends_on_rank
from truestep.doctor.source.values import argument, forwards_all


class LoaderWithoutSampler(SourceCheck):
    """A model is wrapped in DistributedDataParallel, but its loader has no distributed sampler.

    Why: every rank reads all the data: an epoch is as many epochs as there are ranks (with shuffle=True
    unseeded).

    Bad:
        net = DDP(net)
        for x, y in DataLoader(data, batch_size=32, shuffle=True):  # here
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Good:
        net = DDP(net)
        sampler = DistributedSampler(data)
        sampler.set_epoch(0)
        for x, y in DataLoader(data, batch_size=32, sampler=sampler):
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Fix: sampler=DistributedSampler(data) and sampler.set_epoch(epoch).
    """

    code = "DIST002"
    words = ("DistributedDataParallel", "DDP")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report shuffling loaders in a file that wraps in DDP and neither samples nor splits by rank."""
        wrapped = module.calls("torch.nn.parallel.DistributedDataParallel")
        splits = any("sampler" in word.lower() or word in ("shard", "Subset") for word in module.identifiers)
        if not wrapped or splits:
            return
        for call in module.calls("torch.utils.data.DataLoader"):
            data = argument(call, 0, "dataset")
            stream = data is not None and module.kind(data) == "iterable dataset"
            name = ast.unparse(module.statement(call)).split("=")[0].lower()
            if (
                not stream
                and not forwards_all(call)
                and not any(word in name for word in ("val", "test", "eval"))
                and not depends_on_rank(module, call)  # by its data, or by the seed of its order
            ):
                seeded = any(depends_on_rank(module, seed) for seed in module.of_program(_seeds))
                text = "Every rank reads all the data: the loader has no distributed sampler."
                yield At(call, text, RISK if seeded else BUG)


def _seeds(files: list[SourceModule]) -> list[ast.expr]:
    """Return what the program seeds torch with: ranks that are seeded apart may each draw from all data on purpose."""
    names = ("manual_seed", "seed_everything", "seed")
    calls = [
        call
        for file in files
        for call in [*file.method_calls(*names), *file.calls("truestep.seed_everything")]
    ]
    return [each for call in calls for each in call.args]
