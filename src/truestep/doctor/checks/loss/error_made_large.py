# SPDX-License-Identifier: Apache-2.0
"""An error that training makes larger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from truestep.doctor.check import BUG
from truestep.doctor.finding import Place
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import ForwardCall, OptimizerRecord, WatchHistory
    from truestep.doctor.runtime.loss_term_signs import LossDirection

STEPS = 4  # so many show the same; the loader of an example gives no more


@dataclass(frozen=True)
class _LossTermDirection:
    """What a term made small or large when it went backward, the weights behind it, and the models applied before."""

    found: LossDirection
    loss: float
    reach: set[int] | None
    applied: frozenset[int]  # by their identities

    def is_trained_alone(self, history: WatchHistory, stepped: list[OptimizerRecord]) -> bool:
        """Tell whether all that it reaches is trained on it, and no other model's answer is in it: nobody is to be fooled.

        A model of which more is held still than trained may be one that is to be fooled.
        """
        held = {id(each) for record in stepped for each in record.parameters()}
        if not self.reach or not self.reach <= held or not self.applied:
            return False
        loaded = {id(each) for model in history.loaded for each in model.parameters()}
        theirs = {id(each) for record in history.records.values() for each in record.parameters()} - held
        for key in self.applied:
            model = history.models_by_id.get(key)
            if model is None:
                return False
            sizes = {id(each): each.numel() for each in model.parameters()}
            trained = sum(size for key, size in sizes.items() if key in held)
            if sizes and (2 * trained <= sum(sizes.values()) or not sizes.keys().isdisjoint(loaded | theirs)):
                return False
        return True


class ErrorMadeLarge(Watcher):
    """Training makes an error larger or the data less likely: a sign is turned round.

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
        # optimizers that make some error small: the other way is meant beside it
        self.opposed: set[int] = set()
        self.moved: set[int] = set()  # whose weights something else changes as well
        self.sums: dict[int, list[float]] = {}  # of a few weights, as a step left them
        self.applied: set[int] = set()  # models, by their identities, with a graph, since the last step
        self.pending: list[
            _LossTermDirection
        ] = []  # of what went backward, until it is known who steps on it
        self.num_objectives = 0  # since the last step
        self.stepped: list[OptimizerRecord] = []
        self.seen: dict[Place, list[float]] = {}  # weights with which an error was made large

    def on_forward(self, history: WatchHistory, forward: ForwardCall) -> None:
        """Remember whose answers a loss may hold."""
        if history.is_in_first_steps and forward.gradients_on:
            self.applied.add(id(forward.module))

    def on_objective(self, history: WatchHistory, tensors: tuple[Tensor, ...], place: Place) -> Observations:
        """Look at what each term of the loss makes small or large."""
        yield from self._report_findings(history)
        if not history.is_in_first_steps or not history.records or history.is_seeded:
            return
        from truestep.doctor.runtime.gradient_reach import leaves_behind_node
        from truestep.doctor.runtime.loss_term_signs import loss_direction

        self.num_objectives += 1
        self.moved.update(
            key for key, sums in self.sums.items() if _weight_sums(history.records.get(key)) != sums
        )
        for root in tensors:
            terms = [each for each in history.sums.terms_of(root) if each.node is not None]
            for term in terms:
                found = loss_direction(term)
                if found is not None:
                    loss, reach = float(root.detach().mean()), leaves_behind_node(term.node)
                    self.pending.append(_LossTermDirection(found, loss, reach, frozenset(self.applied)))

    def on_stepped(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> None:
        """Remember who stepped, and where its weights are now."""
        self.applied.clear()
        if history.is_in_first_steps and self.pending:
            self.stepped.append(record)
            self.sums[id(record.optimizer)] = _weight_sums(record)

    def on_finish(self, history: WatchHistory) -> Observations:
        """Judge what was stepped on last."""
        yield from self._report_findings(history)

    def _report_findings(self, history: WatchHistory) -> Observations:
        """Judge what went backward and was stepped on since."""
        if not self.stepped:
            return
        stepped, self.stepped = self.stepped, []
        pending, self.pending = self.pending, []
        num_objectives, self.num_objectives = self.num_objectives, 0
        records = {id(each.optimizer): each for each in stepped}
        ways = {group.get("maximize", False) for each in stepped for group in each.optimizer.param_groups}
        if len(ways) != 1 or (len(records) > 1 and num_objectives > 1):
            self.opposed.update(records)  # who is to be made large is not known
            return
        (turned,) = ways
        if any(each.found.is_wrong is turned for each in pending):
            self.opposed.update(records)
        if not self.opposed.isdisjoint(records):
            return
        whole = len(records) == 1 and _is_only_optimizer_of_models(history, stepped[0])
        for each in pending:
            if whole or (self.moved.isdisjoint(records) and each.is_trained_alone(history, stepped)):
                yield from self._report_repeated_direction(each, turned, stepped[0].place)

    def _report_repeated_direction(
        self, made: _LossTermDirection, turned: bool, optimizer_at: Place
    ) -> Observations:
        """Report what has been made large as often as it takes."""
        found = made.found
        weights = self.seen.setdefault(found.place, [])
        weights.append(found.weight)
        if len(weights) == STEPS and max(weights) - min(weights) <= 1e-6 * abs(weights[0]):
            text = f"Training makes {_direction_text(found)}: the loss falls without bound."
            if turned:
                text = f"With maximize=True training makes {_direction_text(found)}."
            evidence = {"loss": made.loss, "weight": found.weight}
            yield Observation(optimizer_at if turned else found.place, text, BUG, evidence)


def _direction_text(found: LossDirection) -> str:
    if found.what == "log-probability":
        return "a log-probability smaller"
    what = "the squared or absolute difference" if found.what == "difference" else found.what
    return f"{what.replace('_', ' ')} larger"


def _weight_sums(record: OptimizerRecord | None) -> list[float]:
    """Return the sums of a few of an optimizer's weights: another change than its step's shows there."""
    return [float(each.detach().sum()) for each in record.followed()] if record is not None else []


def _is_only_optimizer_of_models(history: WatchHistory, record: OptimizerRecord) -> bool:
    """Tell a run of one optimizer that trains, from the start, each model that is applied: nobody is to be fooled."""
    held = {id(each) for each in record.parameters()}
    models = [list(each.parameters()) for each in history.models]
    alone = all(each is record for each in history.stepped_optimizers()) and not history.loaded
    return alone and all(any(id(each) in held for each in weights) for weights in models if weights)
