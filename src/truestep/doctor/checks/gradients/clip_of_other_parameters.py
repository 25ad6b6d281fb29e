# SPDX-License-Identifier: Apache-2.0
"""A clip of what is not stepped."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.doctor.check import At, SourceCheck
from truestep.doctor.finding import Place
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted, names_in
from truestep.doctor.source.values import seen_through
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    import torch

    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory


class ClipOfOtherParameters(SourceCheck, Watcher):
    """The gradients of one model are clipped, and another one's parameters are stepped.

    Why: the step that was to be bounded is not.

    Bad:
        teacher = nn.Linear(4, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            loss = F.mse_loss(net(x), teacher(x))
            loss.backward()
            nn.utils.clip_grad_norm_(teacher.parameters(), 1.0)  # here
            opt.step()

    Good:
        teacher = nn.Linear(4, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            loss = F.mse_loss(net(x), teacher(x))
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()

    Fix: clip the parameters that the optimizer holds.
    """

    code = "GRAD029"
    words = ("clip_grad",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report a clip of a name's parameters in a file whose optimizers all hold other names'."""
        held = _held(module)
        for call in module.calls("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_"):
            name = _owner(seen_through(module, call.args[0])) if call.args else None
            if held and name is not None and name.split(".")[0] != "self" and name not in held:
                if not self._may_be_part(module, name, held):
                    others = ", ".join(sorted(each for each in held if each))
                    yield At(call, f"{name}'s gradients are clipped; the optimizer steps {others}.")

    def _may_be_part(self, module: SourceModule, name: str, held: set[str | None]) -> bool:
        """A part of a model that is held, another name for it, or one that can't be followed."""
        nodes = [node for node in module.reads(name) if isinstance(node, ast.Name)]
        definitions = module.definitions(nodes[0]) if nodes else [None]
        if any(each is not None and dotted(each) in held for each in definitions):
            return True  # a function that is called for several models clips the one that it is given
        made = [seen_through(module, each) for each in definitions]
        followed = bool(made) and all(
            isinstance(each, ast.Call) and not (set(names_in(each)) & held) for each in made
        )
        unclear = any(each is None or each.split(".")[0] == name for each in held)
        return not followed or unclear or any(_is_made_with(module, each, name) for each in held)

    def __init__(self) -> None:
        self.clipped: list[tuple[set[int], Place]] = []

    def on_clip(self, history: WatchHistory, parameters: list[torch.Tensor], place: Place) -> None:
        """Remember what was clipped since the last step."""
        self.clipped.append(({id(each) for each in parameters}, place))

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report a single clip before a step, of parameters that no optimizer holds."""
        clipped, self.clipped = self.clipped, []
        held = {id(each) for other in history.records.values() for each in other.parameters()}
        if len(clipped) == 1 and clipped[0][0] and not (clipped[0][0] & held):
            number = len(clipped[0][0])
            text = f"No optimizer holds any of the {number} parameters that are clipped."
            yield Observation(clipped[0][1], text, evidence={"parameters_clipped": number})


def _is_made_with(module: SourceModule, held: str | None, name: str) -> bool:
    """Tell whether what is held belongs to an object out of sight that was given the clipped model: it may be the same."""
    roots = [each for each in module.reads((held or "").split(".")[0]) if isinstance(each, ast.Name)]
    made = module.definitions(roots[0]) if roots and "." in (held or "") else []
    return any(isinstance(each, ast.Call) and name in names_in(each) for each in made)


def _held(module: SourceModule) -> set[str | None]:
    """Return whose parameters the optimizers of a file hold; None stands for one that can't be told."""
    found: set[str | None] = set()
    for name, call in module.calls_matching("torch.optim."):
        if name.rsplit(".", 1)[-1][:1].isupper() and not name.startswith(
            ("torch.optim.lr_", "torch.optim.swa_")
        ):
            found.add(_owner(seen_through(module, call.args[0])) if call.args else None)
    return found


def _owner(node: ast.expr | None) -> str | None:
    """Return net for `net.parameters()`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parameters":
        return dotted(node.func.value)
    return None
