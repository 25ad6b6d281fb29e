# SPDX-License-Identifier: Apache-2.0
"""A layer that the loss does not reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor, nn

    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory
    from truestep.doctor.runtime.value_origins import WatchedOrigin

AFTER = 6
AFTER_FOR_MEMBERS = (
    64  # of a list of layers, of which others are reached: the batch may choose, as among experts
)


class LayerWithoutGradient(Watcher):
    """Some trainable parameters of an optimizer never get a gradient.

    Why: forward does not use them, or the path to the loss is cut (detach, .data, torch.tensor of a
    tensor); under DistributedDataParallel they stop the run. Of layers in an `nn.ModuleList` the batch may choose
    some: one that it never chose is told after 64 updates.

    Bad:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.used, self.unused = nn.Linear(4, 3), nn.Linear(4, 3)

            def forward(self, x):
                return self.used(x)

        net = Net()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)  # here
        for _ in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Good:
        for _ in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()

    Fix: use the layer in forward or delete it; look for detach(), .data and .item() on the way to the loss.

    Evidence: MorvanZhou/PyTorch-Tutorial dbe154a9 tutorial-contents/504_batch_normalization.py:57;
    eriklindernoren/PyTorch-GAN 36d3c77e implementations/sgan/sgan.py:144.
    """

    code = "PARAM016"

    def __init__(self) -> None:
        self.reached: dict[int, set[int]] = {}
        self.held: dict[int, set[int]] = {}  # what each optimizer held from its first step on
        self.judged: set[tuple[int, bool]] = set()  # optimizers, and whether the members of lists are meant

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report, some steps in, what had no gradient in any step while others had one; later, one of several layers."""
        held = self.held.setdefault(id(record), {id(each) for each in record.parameters()})
        reached = self.reached.setdefault(id(record), set())
        reached |= {id(each) for each in record.parameters() if each.grad is not None}
        members = record.num_steps >= AFTER_FOR_MEMBERS
        if record.num_steps < AFTER or not reached or (id(record), members) in self.judged:
            return
        self.judged.add((id(record), members))
        known = {id(each) for model in history.models for each in model.parameters()}
        silent = [each for each in record.parameters() if id(each) in held - reached and each.requires_grad]
        elsewhere = set().union(*self.reached.values())  # by a loss that another optimizer steps for
        silent = [
            each for each in silent if id(each) in known - elsewhere
        ]  # unknown ones were replaced: PARAM005
        chosen = _unreached_sibling_parameters(history, set().union(*self.reached.values()))
        silent = [each for each in silent if (id(each) in chosen) is members]
        if silent:
            names = [history.parameter_name(each) for each in silent[:6]]
            total = sum(1 for _ in record.parameters())
            end = _origin_of_graph_end(history, silent)
            told = f"; the graph ends in {history.told(end, end.place)}" if end is not None else ""
            text = f"{len(silent)} of {total} parameters never had a gradient: {', '.join(names)}{told}."
            evidence = {"without_gradient": names, "steps": record.num_steps + 1}
            yield Observation(end.place if end is not None else record.place, text, RISK, evidence)


def _unreached_sibling_parameters(history: WatchHistory, reached: set[int]) -> set[int]:
    """Return the identities of the parameters of those layers in a list or dict that nothing reached, where it reached others."""
    from torch import nn

    found: set[int] = set()
    for model in history.models:
        for several in model.modules():
            if type(several) in (nn.ModuleList, nn.ModuleDict):
                members = [_parameter_ids(each) for each in several.children()]
                unreached = [each for each in members if not each & reached]
                found |= set().union(*unreached) if len(unreached) < len(members) else set()
    return found


def _parameter_ids(module: nn.Module) -> set[int]:
    return {id(each) for each in module.parameters()}


def _origin_of_graph_end(history: WatchHistory, silent: list[Tensor]) -> WatchedOrigin | None:
    """Return the operation that ended the graph behind one of these parameters in this step, or read a number out of it."""
    mine = {id(each) for each in silent}
    modules = [part for model in history.models for part in model.modules() if part.training]
    layers = {
        id(part) for part in modules if any(id(each) in mine for each in part.parameters(recurse=False))
    }
    ends = (*history.origins.cuts, *history.origins.reads)
    return next((cut for cut in ends if any(id(each.layer) in layers for each in cut.ancestors())), None)
