# SPDX-License-Identifier: Apache-2.0
"""One of several optimizers, left out of a checkpoint."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import Class, dotted

_PART = "self."


class OneOptimizerNotSaved(SourceCheck):
    """A class trains with several optimizers and saves, or loads, the state of all but one.

    Why: after resuming, its averages start from zero while the others go on: the two sides are out of step.

    Bad:
        class Trainer:
            def __init__(self, net, critic):
                self.net, self.critic = net, critic
                self.opt = torch.optim.Adam(net.parameters())
                self.critic_opt = torch.optim.Adam(critic.parameters())

            def update(self, x, y):
                self.opt.zero_grad()
                F.cross_entropy(self.net(x), y).backward()
                self.opt.step()

            def update_critic(self, x, y):
                self.critic_opt.zero_grad()
                F.cross_entropy(self.critic(x), y).backward()
                self.critic_opt.step()

            def save(self):
                torch.save(self.net.state_dict(), "net.pt")
                torch.save(self.critic.state_dict(), "critic.pt")
                torch.save(self.opt.state_dict(), "opt.pt")  # here

    Good:
        class Trainer:
            def __init__(self, net, critic):
                self.net, self.critic = net, critic
                self.opt = torch.optim.Adam(net.parameters())
                self.critic_opt = torch.optim.Adam(critic.parameters())

            def update(self, x, y):
                self.opt.zero_grad()
                F.cross_entropy(self.net(x), y).backward()
                self.opt.step()

            def update_critic(self, x, y):
                self.critic_opt.zero_grad()
                F.cross_entropy(self.critic(x), y).backward()
                self.critic_opt.step()

            def save(self):
                torch.save(self.net.state_dict(), "net.pt")
                torch.save(self.critic.state_dict(), "critic.pt")
                torch.save(self.opt.state_dict(), "opt.pt")
                torch.save(self.critic_opt.state_dict(), "critic_opt.pt")

    Fix: save and load the state of every optimizer that steps.
    """

    code = "SAVE018"
    words = ("state_dict",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report the last save, and the last load, of the states of a class's optimizers, if one that steps is never among them."""
        for owner in module.all(ast.ClassDef):
            calls = {name: _asked(module, owner, name) for name in ("step", "state_dict", "load_state_dict")}
            stepped = {place for place, call in calls["step"].items() if _is_optimizer(module, call)}
            for what, verb in (("state_dict", "saved"), ("load_state_dict", "loaded")):
                known = {place: call for place, call in calls[what].items() if place in stepped}
                left = stepped - known.keys()
                if known and left and not _elsewhere(module, what, left):
                    last = max(known.values(), key=lambda call: call.lineno)
                    text = f"{min(left)!r} steps too, and its state is never {verb}."
                    yield At(last, text, RISK)


def _asked(module: SourceModule, owner: Class, name: str) -> dict[str, ast.Call]:
    """Return the last call of a method on each attribute of the class's objects."""
    found: dict[str, ast.Call] = {}
    for call in module.inside(owner, ast.Call):
        place = (
            dotted(call.func.value)
            if isinstance(call.func, ast.Attribute) and call.func.attr == name
            else None
        )
        if place is not None and place.startswith(_PART):
            found[place] = call
    return found


def _is_optimizer(module: SourceModule, call: ast.Call) -> bool:
    """Tell an optimizer that is made in sight, whatever its name."""
    assert isinstance(call.func, ast.Attribute)
    receiver = call.func.value
    return module.kind(receiver) == "optimizer" and not module.is_guess(receiver)


def _elsewhere(module: SourceModule, method: str, left: set[str]) -> bool:
    """Tell whether the program asks anything else for its state, or gives it one, that may be one of these."""
    names = {each.rpartition(".")[2] for each in left}
    for call in module.called_anywhere(method):
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        if receiver is not None and _may_be(module.home(call), receiver, names):
            return True
    return False


def _may_be(module: SourceModule, receiver: ast.expr, names: set[str]) -> bool:
    place = dotted(receiver)
    if place is None or place.rpartition(".")[2] in names:
        return True
    if not isinstance(receiver, ast.Name) or module.kind(receiver) == "module":
        return False
    owners = [each.parameter_of for each in module.bindings(receiver) if each.how == "parameter"]
    if owners and not any(module.callers(each) for each in owners if each is not None):
        return False  # what is never called is given none
    return any(
        each is None or _may_be(module, each, names) for each in module.definitions(receiver) or [None]
    )
