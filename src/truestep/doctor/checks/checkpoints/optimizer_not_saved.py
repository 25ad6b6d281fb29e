# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that can't be resumed from."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.counters import counted_loops, is_made_anew, is_named_as_counter, loops_that_train
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.values import constant


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
            if any(isinstance(each, ast.Dict) and _to_resume(module, each) for each in values):
                yield At(call, "A step or epoch to resume from is saved, but no optimizer state.", RISK)


def _to_resume(module: SourceModule, saved: ast.Dict) -> bool:
    models = [
        each.func.value
        for value in saved.values
        for each in walk(value)
        if isinstance(each, ast.Call)
        and isinstance(each.func, ast.Attribute)
        and each.func.attr == "state_dict"
    ]
    pairs = zip(saved.keys, saved.values, strict=True)
    return bool(models) and any(_is_counter(module, key, value, models[0]) for key, value in pairs)


def _is_counter(module: SourceModule, key: ast.expr | None, value: ast.expr, model: ast.expr) -> bool:
    """Tell the counter of a loop that trains this model; what is out of sight goes by its names."""
    loops = counted_loops(module, value)
    if loops is None:
        names = (dotted(value) or "").rsplit(".", 1)[-1], constant(key)
        return any(is_named_as_counter(each) for each in names if isinstance(each, str))
    training = loops & loops_that_train(module)
    return any(not is_made_anew(module, each, model) for each in training)
