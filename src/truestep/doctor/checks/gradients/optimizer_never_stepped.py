# SPDX-License-Identifier: Apache-2.0
"""One of several optimizers that is never asked to step."""

import ast
from collections.abc import Iterator

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.libraries import library_taking_over
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, walk
from truestep.doctor.source.signatures import own_name
from truestep.doctor.source.uses import reads_followed

# what is done with an optimizer that trains nothing by it
_IDLE = ("zero_grad", "param_groups", "state_dict", "load_state_dict", "defaults", "state", "train", "eval")
_SAME = ("prepare", "setup", "to")  # gives back what it is given, under the same name


class OptimizerNeverStepped(SourceCheck):
    """A program makes two optimizers, and steps one of them only.

    Why: what the other one holds, a discriminator or a second head, keeps its first weights.

    Bad:
        critic = nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        critic_optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)  # here
        for x, y in loader:
            opt.zero_grad()
            critic_optimizer.zero_grad()
            value_loss = critic(x).pow(2).mean()
            (F.cross_entropy(net(x), y) + value_loss).backward()
            opt.step()

    Good:
        critic = nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        critic_optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            critic_optimizer.zero_grad()
            value_loss = critic(x).pow(2).mean()
            (F.cross_entropy(net(x), y) + value_loss).backward()
            opt.step()
            critic_optimizer.step()

    Fix: call its step() behind the backward() that is its own.
    """

    code = "GRAD048"
    words = ("backward",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report an optimizer that nothing steps, nothing is handed and nothing keeps, beside one that is stepped."""
        made = [node for node in module.all(ast.Assign) if _is_optimizer(module, node)]
        if not made or library_taking_over(module, "step"):
            return
        for node in made:
            place = dotted(node.targets[0]) or ""
            idle = _uses(module, node, place)
            if idle is None or not idle:
                continue
            if any(other is not node and _is_stepped(module, node, other) for other in made):
                yield At(node, f"Nothing steps {place!r}, while another optimizer is stepped.", RISK)


def _is_optimizer(module: SourceModule, node: ast.Assign) -> bool:
    return (
        len(node.targets) == 1
        and dotted(node.targets[0]) is not None
        and isinstance(node.value, ast.Call)
        and module.kind(node.targets[0]) == "optimizer"
    )


def _reads(module: SourceModule, node: ast.Assign, place: str) -> list[ast.expr]:
    """Return where a variable of a function, or an attribute of whatever object, is read."""
    if isinstance(node.targets[0], ast.Attribute):
        return list(module.attributes_read.get(node.targets[0].attr, ()))
    scope = module.scope(node)
    return [each for each in module.reads(place) if scope in (module.scope(each), *module.ancestors(each))]


def _uses(module: SourceModule, node: ast.Assign, place: str) -> list[ast.expr] | None:
    """Return where it is used without training by it; None where it may be stepped, or out of sight."""
    found: list[ast.expr] = []
    for read in (use for each in _reads(module, node, place) for use in reads_followed(module, each)):
        home = module.home(read)
        above = home.parents[read]
        if isinstance(above, ast.Attribute):
            if above.attr not in _IDLE:
                return None
            found.append(read)
        elif isinstance(above, ast.Call) and above.func is not read:
            if not (_is_schedule(home, above) or _gives_it_back(home, above, place)):
                return None
            found.append(read)
        else:
            return None
    return found


def _is_schedule(module: SourceModule, call: ast.Call) -> bool:
    return module.kind(call) == "scheduler" or "sched" in (own_name(call.func) or "").lower()


def _gives_it_back(module: SourceModule, call: ast.Call, place: str) -> bool:
    statement = module.statement(call)
    if own_name(call.func) not in _SAME or not isinstance(statement, ast.Assign):
        return False
    targets = [part for each in statement.targets for part in walk(each)]
    return place in {dotted(each) for each in targets}


def _is_stepped(module: SourceModule, node: ast.Assign, other: ast.Assign) -> bool:
    """Tell whether another optimizer of the same function or class is stepped."""
    together = module.scope(node) is module.scope(other)
    place = dotted(other.targets[0]) or ""
    reads = _reads(module, other, place) if together else []
    for read in (use for each in reads for use in reads_followed(module, each)):
        above = module.home(read).parents[read]
        if isinstance(above, ast.Attribute) and above.attr == "step":
            return True
    return False
