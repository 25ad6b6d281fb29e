# SPDX-License-Identifier: Apache-2.0
"""A kernel of torch's that computes wrong numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.finding import Place
from truestep.doctor.library.functions import functions
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.rewriting import Edits, without_keyword
from truestep.doctor.source.values import argument, literal
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

VECTOR = 16  # from so many elements on the kernel reads whole vectors
HALVES = functions("is a type of half size")


class FusedSgdInHalf(SourceCheck, Watcher):
    """Fused SGD steps float16 or bfloat16 parameters on the CPU.

    Why: in torch 2.13 the kernel reads and writes only half of each vector: tensors of 16 or more
    elements get wrong numbers, silently.

    Bad:
        small = nn.Linear(4, 8).to(torch.bfloat16)
        opt = torch.optim.SGD(small.parameters(), lr=0.1, fused=True)  # here
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(small(x.to(torch.bfloat16)), y).backward()
            opt.step()

    Good:
        small = nn.Linear(4, 8).to(torch.bfloat16)
        opt = torch.optim.SGD(small.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(small(x.to(torch.bfloat16)), y).backward()
            opt.step()

    Fix: leave out fused=True, or keep the parameters in float32 under autocast.
    """

    code = "AMP009"
    words = ("fused",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report it in a file that converts a module and names no other device."""
        if "cuda" in module.text or "device" in module.text or not self._converts(module):
            return
        for call in module.calls("torch.optim.SGD"):
            if literal(module, argument(call, None, "fused")) is True:
                yield At(call, "torch's fused SGD computes wrong numbers from half precision on a CPU.", RISK)

    def rewrite(self, module: SourceModule, node: Any) -> Edits:
        """Leave out the fused kernel."""
        return [without_keyword(module, node, "fused")]

    def _converts(self, module: SourceModule) -> bool:
        for call in module.method_calls("to", "half", "bfloat16"):
            assert isinstance(call.func, ast.Attribute)
            half = call.func.attr != "to" or (bool(call.args) and module.qualify(call.args[0]) in HALVES)
            if half and module.kind(call.func.value) == "module":
                return True
        return False

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report the first step of such parameters."""
        import torch

        if record.num_steps or not isinstance(record.optimizer, torch.optim.SGD):
            return
        wrong = [
            each
            for group in record.optimizer.param_groups
            if group.get("fused")
            for each in group["params"]
            if each.device.type == "cpu" and each.dtype in (torch.float16, torch.bfloat16)
        ]
        larger = [each for each in wrong if each.numel() >= VECTOR]
        if larger:
            text = f"The fused kernel steps {len(larger)} tensors of {larger[0].dtype} wrongly on the CPU."
            yield Observation(
                record.place, text, evidence={"tensors": len(larger), "torch": torch.__version__}
            )
