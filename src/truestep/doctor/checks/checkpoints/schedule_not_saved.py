# SPDX-License-Identifier: Apache-2.0
"""A run that goes on with its optimizer's state and without its schedule's."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.checkpoints import saves_of
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import walk
from truestep.doctor.source.values import argument


class ScheduleNotSaved(SourceCheck):
    """A checkpoint holds the optimizer's state, by which a run goes on, and no schedule's, though one is stepped.

    Why: a run that goes on begins its schedule anew: warm-up and decay start again from the rate where it stopped.

    Bad:
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=10)
        state = torch.load("last.pt", weights_only=True)
        opt.load_state_dict(state["opt"])
        for epoch in range(10):
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
            sched.step()
            torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, "last.pt")  # here

    Good:
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=10)
        state = torch.load("last.pt", weights_only=True)
        opt.load_state_dict(state["opt"])
        sched.load_state_dict(state["sched"])
        for epoch in range(10):
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()
            sched.step()
            kept = {"net": net.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict()}
            torch.save(kept, "last.pt")

    Fix: save and load scheduler.state_dict(), too.
    """

    code = "SAVE014"
    words = ("state_dict",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a saved dict with an optimizer's state, in a program that loads such, and never asks a schedule for its."""
        if not module.of_program(_goes_on_without_schedule):
            return
        for saved in saves_of(module):
            kinds = {kind for value in saved.keys.values() for kind in _states_in(module, value)}
            if "optimizer" in kinds and "scheduler" not in kinds:
                yield At(
                    saved.call, "The schedule is stepped, and its state is not in this checkpoint.", RISK
                )
                return


def _states_in(module: SourceModule, value: ast.expr) -> Iterator[str]:
    """Yield the kinds of the objects whose state_dict() stands in a value."""
    for each in walk(value):
        if (
            isinstance(each, ast.Call)
            and isinstance(each.func, ast.Attribute)
            and each.func.attr == "state_dict"
        ):
            kind = module.home(each).kind(each.func.value)
            if kind is not None:
                yield kind


def _goes_on_without_schedule(files: list[SourceModule]) -> bool:
    """Tell whether an optimizer's state is loaded, and a schedule stepped that is neither saved nor set back by hand."""
    loads = {kind for each in files for kind in _kinds_of(each, "load_state_dict")}
    saves = {kind for each in files for kind in _kinds_of(each, "state_dict")}
    made = [
        call
        for each in files
        for _, call in each.calls_matching("torch.optim.lr_scheduler.")
        if argument(call, None, "last_epoch") is None
    ]
    stepped = any("scheduler" in _kinds_of(each, "step") for each in files)
    return "optimizer" in loads and bool(made) and stepped and "scheduler" not in loads | saves


def _kinds_of(module: SourceModule, method: str) -> set[str | None]:
    """Return the kinds of what a method of this name is called on; what is not known may be a schedule."""
    found: set[str | None] = set()
    for call in module.method_calls(method):
        assert isinstance(call.func, ast.Attribute)
        kind = module.kind(call.func.value)
        found.add("scheduler" if kind is None and method != "step" else kind)
    return found
