# SPDX-License-Identifier: Apache-2.0
"""A model's output that nothing looks at."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import ForwardCall, LossCall, OptimizerRecord, WatchHistory
    from truestep.doctor.runtime.origins import WatchedOrigin

STEPS = 3  # so many show the same
MOST = 64  # outputs of a step


@dataclass
class GivenOutput:
    """An output of a model that is trained, and what its graph lies between."""

    output: weakref.ref[Tensor]
    place: Place
    called: str
    node: Any  # of its graph; None once its step is over
    inputs: tuple[Any, ...]  # the nodes of what the model was given


class OutputNeverUsed(Watcher):
    """A model is applied in each training step, with gradients, and no operation is ever given its output.

    Why: the pass is for nothing, and most often a loss was meant for it: another output stands in its place.

    Bad:
        for x, y in loader:
            clean = net(x)
            noisy = net(x + torch.randn_like(x))  # here
            opt.zero_grad()
            (F.cross_entropy(clean, y) + F.mse_loss(clean, torch.zeros(8, 3))).backward()
            opt.step()

    Good:
        for x, y in loader:
            clean = net(x)
            noisy = net(x + torch.randn_like(x))
            opt.zero_grad()
            (F.cross_entropy(clean, y) + F.mse_loss(clean, noisy)).backward()
            opt.step()

    Fix: use the output, or leave the pass out; one that only moves the statistics of norms goes under torch.no_grad().
    """

    code = "VALUE025"

    def __init__(self) -> None:
        self.given: dict[int, GivenOutput] = {}  # those not used yet, by the identity of the output
        self.gone: list[GivenOutput] = []
        self.seen: dict[Place, int] = {}
        self.used: set[Place] = set()

    def on_forward(self, history: WatchHistory, forward: ForwardCall) -> None:
        """Remember an output that carries a graph."""
        from torch import Tensor

        from truestep.doctor.runtime.looking import is_plain_watched_tensor, watched_tensors

        output, is_new = forward.output, forward.place not in self.used
        if not (history.in_window and is_new and isinstance(output, Tensor) and len(self.given) < MOST):
            return
        if history.compiled or not is_plain_watched_tensor(output) or history.origins.of(output) is None:
            return  # not every operation is told of
        if forward.module.training and output.requires_grad and not output.is_leaf:
            inputs = watched_tensors([*forward.args, *forward.kwargs.values()])
            nodes = tuple(each.grad_fn for each in inputs if each.grad_fn is not None)
            if (before := self.given.get(id(output))) is not None:  # gone: its identity came again
                self.gone.append(before)
            known = GivenOutput(weakref.ref(output), forward.place, forward.called, output.grad_fn, nodes)
            self.given[id(output)] = known

    def on_operation(
        self, history: WatchHistory, origin: WatchedOrigin, given: list[Tensor], result: Any
    ) -> None:
        """What an operation is given is used."""
        if self.given:
            self._use(given)

    def on_loss(self, history: WatchHistory, loss: LossCall) -> None:
        """So is what a loss is given."""
        self._use([loss.input, loss.target])

    def _use(self, values: list[Tensor]) -> None:
        for each in values:
            known = self.given.get(id(each))
            if known is not None and known.output() is each:
                self.used.add(known.place)
                del self.given[id(each)]

    def on_backward(self, history: WatchHistory, tensors: tuple[Tensor, ...], place: Place) -> None:
        """What lies in the graph of a loss is used, be it by a hook or a function of the user's own."""
        waiting = {key: each for key, each in self.given.items() if each.node is not None}
        if waiting:
            from truestep.doctor.runtime.reach import watched_graph

            graph = watched_graph([each.grad_fn for each in tensors])
            for key, each in waiting.items():
                own = watched_graph([each.node], each.inputs)
                if graph is None or own is None or not graph.isdisjoint(own):
                    self.used.add(each.place)
                    del self.given[key]

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report outputs that are gone and were never used; what is kept may be used later."""
        self.gone += [each for each in self.given.values() if each.output() is None]
        kept = {key: each for key, each in self.given.items() if each.output() is not None}
        gone, self.gone, self.given = self.gone, [], kept if history.in_window else {}
        for each in kept.values():
            each.node, each.inputs = None, ()
        for each in gone:
            if each.place not in self.used:
                self.seen[each.place] = self.seen.get(each.place, 0) + 1
                if self.seen[each.place] == STEPS:
                    text = f"No operation is given this output of {each.called}: the pass is for nothing."
                    yield Observation(each.place, text, RISK, {"steps": STEPS})
