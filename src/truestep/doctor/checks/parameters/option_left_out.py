# SPDX-License-Identifier: Apache-2.0
"""One of several optimizers to choose from that is not given an option."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.values import argument, forwards_all

# options that have an effect where they are not given: then it is torch's default that trains
_POSITIONS = {"lr": 1, "weight_decay": None}
_OF_ITS_OWN = {
    "torch.optim.AdamW": ("lr", "weight_decay"),
    "torch.optim.Adam": ("lr",),
    "torch.optim.Adagrad": ("lr",),
    "torch.optim.RMSprop": ("lr",),
    "torch.optim.NAdam": ("lr",),
    "torch.optim.RAdam": ("lr",),
}


class OptionLeftOut(SourceCheck):
    """Of several optimizers to choose from all but one are given the learning rate or the weight decay.

    Why: this one then has torch's default, whatever the configuration says.

    Bad:
        def make(name, net, decay):
            if name == "sgd":
                opt = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=decay)
            elif name == "adamw":
                opt = torch.optim.AdamW(net.parameters(), lr=0.1)  # here
            else:
                opt = torch.optim.RMSprop(net.parameters(), lr=0.1, weight_decay=decay)
            return opt

    Good:
        def make(name, net, decay):
            if name == "sgd":
                opt = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=decay)
            elif name == "adamw":
                opt = torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=decay)
            else:
                opt = torch.optim.RMSprop(net.parameters(), lr=0.1, weight_decay=decay)
            return opt

    Fix: give it as the others do.
    """

    code = "PARAM040"
    words = ("torch.optim", "optim")

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report such a call in a chain of arms, two others of which are given the same expression."""
        for chosen in module.all(ast.If):
            if isinstance(module.parents[chosen], ast.If) and chosen in module.parents[chosen].orelse:  # type: ignore[attr-defined]
                continue  # an arm of a chain that was looked at from its top
            arms = [found for arm in _arms_of(chosen) if (found := list(_made_in(module, arm)))]
            if len(arms) < 2:
                continue
            calls = [call for arm in arms for call in arm]
            for name, position in _POSITIONS.items():
                given = [ast.unparse(each) for call in calls if (each := argument(call, position, name))]
                usual = {text for text in given if given.count(text) > 1 and not _is_number(text)}
                giving = [arm for arm in arms if any(argument(call, position, name) for call in arm)]
                is_usual = len(usual) == 1 and len(giving) > len(arms) - len(giving)
                for call in calls if is_usual else ():
                    own = _OF_ITS_OWN.get(module.qualify(call.func) or "", ())
                    if name in own and argument(call, position, name) is None and not forwards_all(call):
                        yield At(
                            call,
                            f"{name}={usual.copy().pop()} is given to the others, and not to this one.",
                            RISK,
                        )


def _is_number(text: str) -> bool:
    return text.replace(".", "").replace("e", "").replace("-", "").isdigit()


def _arms_of(chosen: ast.If) -> Iterator[list[ast.stmt]]:
    while True:
        yield chosen.body
        if len(chosen.orelse) == 1 and isinstance(chosen.orelse[0], ast.If):
            chosen = chosen.orelse[0]
            continue
        yield chosen.orelse
        return


def _made_in(module: SourceModule, arm: list[ast.stmt]) -> Iterator[ast.Call]:
    for statement in arm:
        for each in module.inside(statement, ast.Call):
            if _is_optimizer(module, each):
                yield each


def _is_optimizer(module: SourceModule, call: ast.Call) -> bool:
    """Tell an optimizer of a library, or what is given parameters and a rate and assigned as one."""
    if module.kind(call) == "optimizer":
        return True
    parent = module.parents[call]
    return isinstance(parent, ast.Assign) and module.kind(parent.targets[0]) == "optimizer"
