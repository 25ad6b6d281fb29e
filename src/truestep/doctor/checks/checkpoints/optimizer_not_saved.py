# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that can't be resumed from."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule


class OptimizerNotSaved(SourceCheck):
    """A checkpoint holds the weights and the step or epoch to resume from, but no optimizer state.

    Why: after resuming, momentum and Adam's averages start from zero: another run than the uninterrupted one.

    Bad:
        for epoch in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            torch.save({"net": net.state_dict(), "epoch": epoch}, "last.pt")  # here

    Good:
        for epoch in range(3):
            for x, y in loader:
                opt.zero_grad()
                F.cross_entropy(net(x), y).backward()
                opt.step()
            torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "epoch": epoch}, "last.pt")

    Fix: save optimizer, scheduler, scaler and random state too.
    """

    code = "SAVE005"
    words = ("state_dict",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a saved dict with a state_dict and a counter, where no optimizer's is asked for."""
        if any("opt" in ast.unparse(call.func).lower() for call in module.called_anywhere("state_dict")):
            return
        for call in module.calls("torch.save"):
            given = call.args[0] if call.args else None
            values = (module.definitions(given) if given is not None else []) or [given]
            if any(isinstance(each, ast.Dict) and self._to_resume(each) for each in values):
                yield At(call, "A step or epoch to resume from is saved, but no optimizer state.", RISK)

    def _to_resume(self, saved: ast.Dict) -> bool:
        keys = {each.value for each in saved.keys if isinstance(each, ast.Constant)}
        states = any("state_dict" in ast.unparse(each) for each in saved.values)
        return states and bool(keys & {"epoch", "step", "iteration", "iter", "global_step"})
