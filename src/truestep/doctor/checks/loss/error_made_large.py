# SPDX-License-Identifier: Apache-2.0
"""An error that training makes larger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import BUG, RISK
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory
    from truestep.doctor.runtime.signs import LossDirection
    from truestep.doctor.runtime.sums import WatchedTerm

STEPS = 4  # so many show the same; the loader of an example gives no more


class ErrorMadeLarge(Watcher):
    """Training makes an error larger, the data less likely or the weights longer: a sign is turned round.

    Why: such a loss falls without bound, and looks as if it were learning.

    Bad:
        for x, y in loader:
            opt.zero_grad()
            loss = -F.cross_entropy(net(x), y)  # here
            loss.backward()
            opt.step()

    Good:
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()

    Fix: take the minus away (cross entropy and squared errors are to be small, a log-probability needs one); with
    maximize=True an optimizer turns the sign too.

    Evidence: the plain form of row 48 of docs/mistakes.md.
    """

    code = "LOSS050"

    def __init__(self) -> None:
        self.is_opposed = False  # something makes an error small: the other way is meant beside it
        self.waiting: list[tuple[LossDirection, float]] = []  # of what went backward since the last step
        self.seen: dict[Place, list[float]] = {}  # weights with which an error was made large
        self.sizes: dict[Place, int] = {}

    def on_objective(self, history: WatchHistory, tensors: tuple[Tensor, ...], place: Place) -> Observations:
        """Look at what each term of the loss makes small or large."""
        if not history.in_window or not history.records or history.is_seeded:
            return
        from truestep.doctor.runtime.signs import directions_of

        for root in tensors:
            terms = [each for each in history.sums.terms_of(root) if each.node is not None]
            yield from self._of_weights(history, terms)
            for term in terms:
                found = directions_of(term)
                if found is not None:
                    self.waiting.append((found, float(root.detach().mean())))

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Judge what is stepped on."""
        turned = any(group.get("maximize", False) for group in record.optimizer.param_groups)
        waiting, self.waiting = self.waiting, []
        if not history.in_window:
            return
        self.is_opposed = self.is_opposed or any(each.is_wrong is turned for each, _ in waiting)
        if self.is_opposed or not _trains_all(history, record):
            return
        for found, loss in waiting:
            weights = self.seen.setdefault(found.place, [])
            weights.append(found.weight)
            if len(weights) == STEPS and max(weights) - min(weights) <= 1e-6 * abs(weights[0]):
                text = f"Training makes {_direction_text(found)}: the loss falls without bound."
                if turned:
                    text = f"With maximize=True training makes {_direction_text(found)}."
                evidence = {"loss": loss, "weight": found.weight}
                yield Observation(record.place if turned else found.place, text, BUG, evidence)

    def _of_weights(self, history: WatchHistory, terms: list[WatchedTerm]) -> Observations:
        """Report a size of weights that is taken away from the loss."""
        from truestep.doctor.runtime.signs import is_size_of_weights

        negative = [each for each in terms if each.weight < 0]
        sizes = [(each, weight) for each in negative if (weight := is_size_of_weights(each)) is not None]
        for term, weight in sizes[:1]:
            self.sizes[term.added_at] = self.sizes.get(term.added_at, 0) + 1
            if self.sizes[term.added_at] == STEPS and history.holding([weight]):
                text = f"The size of {history.name_of(weight)} is taken away from the loss: training makes it larger."
                yield Observation(term.added_at, text, RISK, {"weight": term.weight})


def _direction_text(found: LossDirection) -> str:
    if found.what == "log-probability":
        return "a log-probability smaller"
    what = "the squared or absolute difference" if found.what == "difference" else found.what
    return f"{what.replace('_', ' ')} larger"


def _trains_all(history: WatchHistory, record: OptimizerRecord) -> bool:
    """Tell a run of one optimizer that trains, from the start, each model that is applied: nobody is to be fooled."""
    held = {id(each) for each in record.parameters()}
    models = [list(each.parameters()) for each in history.models]
    alone = all(each is record for each in history.stepping()) and not history.loaded
    return alone and all(any(id(each) in held for each in weights) for weights in models if weights)
