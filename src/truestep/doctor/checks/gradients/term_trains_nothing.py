# SPDX-License-Identifier: Apache-2.0
"""A term of a loss from which nothing learns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.runtime.loss_terms import FROM_NUMBERS
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory
    from truestep.doctor.runtime.loss_terms import WatchedTerm

STEPS = 3  # so many backwards show the same
MOST = 64  # terms that wait for a step at a time


@dataclass
class PendingTerm:
    """A term that goes backward: the optimizers whose weights it reaches, until they step or are cleared."""

    term: WatchedTerm
    beside: list[PendingTerm]  # the terms of its loss, itself among them
    waiting: set[int]  # optimizers with gradients of it, by the identity of their record
    is_used: bool = False
    stepped: list[str] = field(default_factory=list)  # optimizers that stepped meanwhile and hold none of it


@dataclass
class TermValues:
    """What a term at one place was worth."""

    values: list[float] = field(default_factory=list)
    is_told: bool = False

    def vary(self) -> bool:
        """Tell whether they differ each time."""
        return len(self.values) >= STEPS and len(set(self.values)) == len(self.values)


class TermTrainsNothing(Watcher):
    """A term that changes from step to step is added into the loss, and no weight learns from it.

    Why: computed under no_grad(), detached, a number of item(), or its gradients are cleared before any step: the loss
    shows it, and nothing makes it smaller.

    Bad:
        for x, y in loader:
            opt.zero_grad()
            x.requires_grad_(True)
            loss = F.cross_entropy(net(x), y)
            slope = torch.autograd.grad(loss, x, retain_graph=True)[0]  # here
            penalty = slope.pow(2).mean()
            (loss + 0.1 * penalty).backward()
            opt.step()

    Good:
        for x, y in loader:
            opt.zero_grad()
            x.requires_grad_(True)
            loss = F.cross_entropy(net(x), y)
            slope = torch.autograd.grad(loss, x, create_graph=True)[0]
            penalty = slope.pow(2).mean()
            (loss + 0.1 * penalty).backward()
            opt.step()

    Fix: compute the term with its graph, the gradient in a penalty by autograd.grad(..., create_graph=True); leave out of
    the loss what is meant for the log alone; where its gradients are cleared, step the optimizer that holds the weights.

    Evidence: the plain form of row 47 of docs/mistakes.md.
    """

    code = "GRAD063"

    def __init__(self) -> None:
        self.seen: dict[tuple[Place, Place], TermValues] = {}
        self.given: list[PendingTerm] = []
        self.cut: list[WatchedTerm] = []  # of what went backward since the last step

    def on_objective(self, history: WatchHistory, tensors: tuple[Tensor, ...], place: Place) -> Observations:
        """Look at the terms of what goes backward."""
        if not history.is_in_first_steps or not history.records:
            return
        for root in tensors:
            terms = history.sums.terms_of(root, in_rows=True)
            if len(terms) > 1 and any(each.node is not None for each in terms):
                yield from self._check_terms_without_graph(history, terms)
                self._note_optimizers_of_terms(history, terms)

    def _check_terms_without_graph(self, history: WatchHistory, terms: list[WatchedTerm]) -> Observations:
        """Report numbers at once, and what was made of weights if it is their optimizer that steps."""
        for term in terms:
            cut = term.is_made_here_of_numbers or (term.node is None and not _is_data_or_constant(term))
            if not cut or _is_value_subtracted(term, terms):
                continue
            if term.origin is not None and term.origin.weights_of:
                self.cut.append(term)
            else:
                yield from self._report_findings(history, term, "carries no gradient")

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """What waits for this optimizer is used; what was made of its weights without a gradient is reported."""
        for given in self.given:
            given.is_used = given.is_used or id(record) in given.waiting
            if id(record) not in given.waiting and len(given.stepped) < STEPS:
                given.stepped.append(history.called(record.optimizer))
        self.given = [each for each in self.given if not all(one.is_used for one in each.beside)]
        waiting, self.cut = self.cut, []
        for term in waiting:
            if term.origin is not None and id(record.optimizer) in term.origin.weights_of:
                yield from self._report_findings(history, term, "carries no gradient")

    def on_clear(self, history: WatchHistory, records: list[OptimizerRecord], place: Place) -> Observations:
        """What has waited for these optimizers alone, while other terms were used, is lost."""
        cleared = {id(each) for each in records}
        for each in self.given:
            had = each.waiting & cleared
            each.waiting -= cleared
            if had and not each.waiting and not each.is_used and any(one.is_used for one in each.beside):
                text = "its gradients are cleared before any step uses them"
                if each.stepped:
                    holders = [history.called(one.optimizer) for one in records if id(one) in had]
                    text += f" ({each.stepped[0]} stepped after it; {holders[0]} holds the weights that it reaches)"
                yield from self._report_findings(history, each.term, text, cleared_at=str(place))
        self.given = [each for each in self.given if each.waiting]

    def _note_optimizers_of_terms(self, history: WatchHistory, terms: list[WatchedTerm]) -> None:
        """Note which optimizers hold what each term reaches; with one optimizer all terms fare alike."""
        if len(history.records) < 2 or len(self.given) > MOST:
            return
        from truestep.doctor.runtime.gradient_reach import leaves_behind_node

        holders = {
            id(each): id(record) for record in history.records.values() for each in record.parameters()
        }
        beside: list[PendingTerm] = []
        for term in (each for each in terms if each.node is not None):
            reached = leaves_behind_node(term.node)
            if reached is None:
                return
            waiting = {holders[each] for each in reached if each in holders}
            if waiting:
                beside.append(PendingTerm(term, beside, waiting))
        self.given += beside

    def _report_findings(
        self, history: WatchHistory, term: WatchedTerm, what: str, **more: str
    ) -> Observations:
        at = _place_of_term(term)
        seen = self.seen.setdefault((at, term.added_at), TermValues())
        if seen.is_told or term.value is None:
            return
        seen.values.append(term.value)
        if seen.vary():
            seen.is_told = True
            text = f"{_term_description(history, term)} is a term of the loss and {what}: it changes the loss and trains nothing."
            yield Observation(at, text, RISK, {"values": seen.values, "weight": term.weight, **more})


def _is_data_or_constant(term: WatchedTerm) -> bool:
    """Tell data and constants from a number, of whatever it was made, and from what was made of trained weights."""
    made = term.origin
    if term.is_plain_number:
        return False
    return made is None or not (made.weights_of or made.operation in FROM_NUMBERS)


def _is_value_subtracted(term: WatchedTerm, terms: list[WatchedTerm]) -> bool:
    """Tell a term that takes another's value away and leaves its gradient: `loss - loss.detach()`."""
    mine = (term.value or 0.0) * term.weight
    others = [(each.value or 0.0) * each.weight for each in terms if each.node is not None]
    return any(abs(mine + each) <= 1e-6 * abs(each) for each in others)


def _place_of_term(term: WatchedTerm) -> Place:
    """Return where its graph was cut, if that was seen; else where it was made, or added."""
    if term.origin is None:
        return term.added_at
    cut = next((each for each in term.origin.ancestors() if each.cuts), term.origin)
    return cut.place


def _term_description(history: WatchHistory, term: WatchedTerm) -> str:
    """Return what the term is, and where its graph ends if that is elsewhere."""
    if term.origin is None:
        return "A number of Python's" if term.is_plain_number else "A value"
    made = term.origin.past_changes_of_shape()
    cut = next((each for each in made.ancestors() if each.cuts), made)
    behind = f" (its graph ends in {history.told(cut)})" if cut is not made and term.node is None else ""
    return f"The result of {history.told(made, _place_of_term(term))}{behind}"
