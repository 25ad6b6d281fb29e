# SPDX-License-Identifier: Apache-2.0
"""An update as one transaction: everybody else frozen, randomness keyed, and no trace left of one that fails."""

from typing import Self

import torch

from truestep.core.errors import NonFiniteError
from truestep.engine.learner_isolation import LearnerIsolation
from truestep.engine.loss_sums import LossTotals
from truestep.engine.parts import LearnerParts
from truestep.engine.plan import UpdatePlan
from truestep.engine.result import Update, make_update


class UpdateTransaction:
    """While it is entered, an update is under way; `Learner.update` and `Learner.accumulating` both enter it.

    It counts the update (which keys its randomness), keeps buffers and the caller's random streams, and freezes other learners.
    At the end the streams and the others are as before. An exception takes the update back: gradients are dropped, buffers put
    back, and the next update draws the random numbers of this one.
    """

    def __init__(self, plan: UpdatePlan) -> None:
        self._plan = plan
        self._frozen: LearnerIsolation | None = None

    def __enter__(self) -> Self:
        plan, context = self._plan, self._plan.context
        # Before anything is drawn or called: a forward may write to buffers of any learner.
        for buffers in plan.buffers:
            buffers.keep()
        self._caller = context.random.save()
        # not before: memory may run out above, and a retry draws the same numbers
        context.keys = plan.keys
        for keys in plan.counting_keys:
            keys.count += 1
        context.is_busy = True
        context.draws.open()
        if plan.isolation is not None:
            self._frozen = plan.isolation.__enter__()
        return self

    def release_other_learners(self, error: BaseException | None = None) -> None:
        """Give other learners back as they were: the last backward is done."""
        if self._frozen is not None:
            frozen, self._frozen = self._frozen, None
            frozen.__exit__(None, error, None)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._frozen is not None:
            self.release_other_learners(error)
        context = self._plan.context
        if error is not None:
            self._plan.undo()
            for keys in self._plan.counting_keys:
                keys.count -= 1
        context.is_busy = False
        context.draws.close()
        context.random.restore(self._caller)
        # A loss that is not finite is one on all ranks, which raise it alike; whatever else went wrong, went wrong here.
        if error is not None and context.world is not None and not isinstance(error, NonFiniteError):
            context.world.failed(error)


def update_of_not_started(learner: LearnerParts) -> Update:
    """Return the update of a learner whose `starts_at` lies ahead: nothing was computed."""
    nothing = torch.zeros((), dtype=torch.float32, device=learner.context.device)
    return make_update(learner.weights, LossTotals(), nothing, learner.was_skipped)
