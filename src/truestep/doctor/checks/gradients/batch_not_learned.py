# SPDX-License-Identifier: Apache-2.0
"""A model that can't learn a few examples by heart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.runtime.history import ForwardCall, LossCall
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.runtime.history import WatchHistory
    from truestep.doctor.runtime.one_batch_overfit import OneBatchProbe

SHARE = 0.9  # of the loss of the best constant output: a model that stays above has learned nothing


class BatchNotLearned(Watcher):
    """The model can't learn sixteen examples by heart in a hundred steps.

    Why: a part of the model that gets no gradient, an output that can't reach the targets, inputs that
    have lost what tells them apart.

    Bad:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

            def forward(self, x):
                return self.last(self.first(x).relu().clamp(max=0))

        stuck = Net()
        opt = torch.optim.SGD(stuck.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(stuck(x), y)  # here
            loss.backward()
            opt.step()

    Good:
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()

    Fix: train on one batch by hand and follow a difference in the inputs through the layers to the loss.

    Evidence: the plain form of row 48 of docs/mistakes.md.
    """

    code = "GRAD030"
    cannot_run: str | None = "no loss was computed from what a model in training mode gave"
    on_request = True

    def __init__(self) -> None:
        self.forward: ForwardCall | None = None
        self.done = False

    def on_forward(self, history: WatchHistory, forward: ForwardCall) -> None:
        """Keep the first forward that is trained on, until its loss is computed."""
        if history.thorough and not self.done and forward.gradients_on and forward.module.training:
            self.forward = forward

    def on_loss(self, history: WatchHistory, loss: LossCall) -> Observations:
        """Try it with the first loss of such a forward's output."""
        forward, self.forward = self.forward, None
        if forward is None or self.done or not loss.input.requires_grad or loss.input.dim() == 0:
            return
        from truestep.doctor.forks.observations import observe_in_child
        from truestep.doctor.runtime.one_batch_overfit import OneBatchProbe

        trial = OneBatchProbe(forward, loss)
        self.done, self.cannot_run = True, trial.obstacle()
        if self.cannot_run is None:
            seen, self.cannot_run = observe_in_child(lambda: _try_to_learn_batch(trial), forward.module)
            yield from seen


def _try_to_learn_batch(trial: OneBatchProbe) -> Observations:
    """Try to learn the batch, in a child."""
    learned = trial.learn()
    if learned.is_stuck(SHARE):
        evidence = {
            "loss_at_first": learned.first,
            "reached": learned.reached,
            "of_best_constant": learned.constant,
            "steps": learned.num_steps,
        }
        text = (
            f"After {learned.num_steps} steps on {trial.examples} examples the loss is {learned.reached:.3g}."
        )
        yield Observation(trial.loss.place, text, RISK, evidence)
