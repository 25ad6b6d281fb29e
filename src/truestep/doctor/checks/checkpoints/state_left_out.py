# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that is not given a state which it has a place for."""

import ast
import re
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Function, is_none
from truestep.doctor.source.signatures import called, own_name

_SAVES = re.compile(r"save|checkpoint|ckpt|snapshot", re.IGNORECASE)
_STATES = {"optimizer", "scheduler", "scaler"}


class StateLeftOut(SourceCheck):
    """A function that saves the state of a training has a parameter for the schedule, or the scaler, and a call leaves it out.

    Why: what is saved holds None there: a resumed run begins its schedule, or its scale, anew.

    Bad:
        def save(path, net, opt, scheduler=None):
            state = {"net": net.state_dict(), "opt": opt.state_dict()}
            if scheduler is not None:
                state["scheduler"] = scheduler.state_dict()
            torch.save(state, path)

        def train(epochs):
            scheduler = torch.optim.lr_scheduler.StepLR(opt, 10)
            for epoch in range(epochs):
                for x, y in loader:
                    opt.zero_grad()
                    F.cross_entropy(net(x), y).backward()
                    opt.step()
                scheduler.step()
                save("last.pt", net, opt)  # here

    Good:
        def save(path, net, opt, scheduler=None):
            state = {"net": net.state_dict(), "opt": opt.state_dict()}
            if scheduler is not None:
                state["scheduler"] = scheduler.state_dict()
            torch.save(state, path)

        def train(epochs):
            scheduler = torch.optim.lr_scheduler.StepLR(opt, 10)
            for epoch in range(epochs):
                for x, y in loader:
                    opt.zero_grad()
                    F.cross_entropy(net(x), y).backward()
                    opt.step()
                scheduler.step()
                save("last.pt", net, opt, scheduler)

    Fix: give it to the function that saves.
    """

    code = "SAVE010"
    words = ("scheduler", "scaler", "optimizer")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a call that gives one such state, where the function around has another under the parameter's name."""
        for call in module.all(ast.Call):
            if not _SAVES.search(own_name(call.func) or "") or not any(
                module.kind(each) in _STATES for each in [*call.args, *(word.value for word in call.keywords)]
            ):
                continue
            function = called(module, call)
            for name in _optional(function) if function is not None else ():
                if function is not None and _is_left_out(module, function, call, name):
                    yield At(call, f"{name!r} is at hand, and this checkpoint is saved without it.", RISK)


def _optional(function: Function) -> list[str]:
    """Return the parameters that are None where nothing is given."""
    names = function.args.args
    defaults = list(zip(reversed(names), reversed(function.args.defaults), strict=False))
    defaults += [
        (name, default)
        for name, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        if default is not None
    ]
    return [name.arg for name, default in defaults if is_none(default)]


def _is_left_out(module: SourceModule, function: Function, call: ast.Call, name: str) -> bool:
    given = module.argument_for(function, call, name)
    if not (given is None or is_none(given)) or any(word.arg is None for word in call.keywords):
        return False
    if given is not None and module.resolver.index.parents.get(given) is call:
        return False  # None is written: it is meant
    reads = [
        each
        for each in module.reads(name)
        if module.scope(each) is module.scope(call)
        and module.kind(each) in _STATES
        and each.lineno < call.lineno
    ]
    return bool(reads)
