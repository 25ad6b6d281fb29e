# SPDX-License-Identifier: Apache-2.0
"""The relations that `ts.relations` tries, in the order in which it shows them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from truestep.doctor.relations.trials import items, order, reach, slopes, tokens
from truestep.doctor.relations.trials.trial import Trials
from truestep.doctor.relations.verdict import Verdict


class TriedRelation(NamedTuple):
    """A relation: how it is tried, and when it applies."""

    name: str
    tried: Callable[[Trials], Verdict | Iterable[Verdict]]
    of_split: bool = False
    """Whether it says that a batch may be split, which a loss that is not decomposable does not promise."""
    of_causal: bool = False


RELATIONS = (
    TriedRelation("permuted", order.permuted),
    TriedRelation("halves", lambda trials: trials.once("halves", order.halves), of_split=True),
    TriedRelation("twice", lambda trials: trials.once("twice", order.twice), of_split=True),
    TriedRelation("one", order.one, of_split=True),
    TriedRelation("changed", order.changed, of_split=True),
    TriedRelation("micro-batches", order.micro_batches, of_split=True),
    TriedRelation("item", items.item_verdicts),
    TriedRelation("slope", slopes.slope_verdicts),
    TriedRelation("moving", reach.moving),
    TriedRelation("trained", reach.trained),
    TriedRelation("padding", tokens.padding),
    TriedRelation("later", tokens.later, of_causal=True),
)
_NOT_DECOMPOSABLE = "decomposable=False says that the examples mix"
_NOT_CAUSAL = "give causal=True if no token may see later ones"
_MOVING_BUFFERS = "with the buffers as they were: what the batch writes to them changes it"


def tried_relations(trials: Trials, *, decomposable: bool, causal: bool) -> Iterator[Verdict]:
    """Yield what is found of each relation."""
    for relation in RELATIONS:
        if relation.of_split and not decomposable:
            yield Verdict(relation.name, "not tried", _NOT_DECOMPOSABLE)
        elif relation.of_causal and not causal:
            yield Verdict(relation.name, "not tried", _NOT_CAUSAL)
        else:
            yield from _try_relation(relation, trials)


def _try_relation(relation: TriedRelation, trials: Trials) -> Iterator[Verdict]:
    found = _verdict_list(relation, trials)
    unclear = [each for each in found if each.outcome in ("broken", "question")]
    if not unclear or not trials.has_buffers:
        yield from found
        return
    # running averages, codebooks and centres that a batch moves make its examples mix; that is what they are for
    trials.frozen = True
    try:
        again = {each.relation: each for each in _verdict_list(relation, trials)}
    finally:
        trials.frozen = False
    for each in found:
        other = again.get(each.relation, each)
        better = each in unclear and other.outcome in ("held", "question") and other.outcome != each.outcome
        yield _with_buffer_note(other) if better else each


def _verdict_list(relation: TriedRelation, trials: Trials) -> list[Verdict]:
    found = relation.tried(trials)
    return [found] if isinstance(found, Verdict) else list(found)


def _with_buffer_note(verdict: Verdict) -> Verdict:
    return replace(verdict, why=f"{_MOVING_BUFFERS}. {verdict.why}".strip(" ."))
