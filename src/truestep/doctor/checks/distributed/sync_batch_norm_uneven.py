# SPDX-License-Identifier: Apache-2.0
"""SyncBatchNorm over loaders of unequal length."""

from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule


class SyncBatchNormUneven(SourceCheck):
    """SyncBatchNorm is used, and nothing sees to it that all ranks have the same number of batches.

    Why: the rank with one batch more waits in forward for the others until the time-out.

    Bad:
        net = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(net))  # here
        for x, y in my_shard_loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Good:
        net = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(net))
        sampler = DistributedSampler(data, drop_last=True)
        sampler.set_epoch(0)
        for x, y in DataLoader(data, sampler=sampler, drop_last=True):
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Fix: DistributedSampler with drop_last=True (net.join() does not cover SyncBatchNorm's forward).
    """

    code = "DIST013"
    words = ("sync_batchnorm", "SyncBatchNorm")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it in a program that trains and has neither a distributed sampler nor drop_last nor join."""
        if module.identifiers & {"DistributedSampler", "drop_last", "throw_on_early_termination"}:
            return
        for call in module.calls("torch.nn.SyncBatchNorm.convert_sync_batchnorm"):
            if any(trace.training_loops() or trace.of("unknown") for trace in module.traces):
                yield At(call, "Nothing makes the number of batches the same on all ranks.", RISK)
