# SPDX-License-Identifier: Apache-2.0
"""Relations of one's own loss function, for tests of training code: as `torch.autograd.gradcheck` is used for gradients."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from truestep.core.errors import BatchError, LossError, names_hint
from truestep.core.result_display import RenderableType, Result, facts_table
from truestep.core.text_formatting import a_type, plural
from truestep.doctor.relations.examples import UnclearExamplesError, find_examples
from truestep.doctor.relations.trials.table import RELATIONS, tried_relations
from truestep.doctor.relations.trials.trained import find_trained
from truestep.doctor.relations.trials.trial import Trials
from truestep.doctor.relations.verdict import RelationOutcome, Verdict

_OUTCOMES: tuple[RelationOutcome, ...] = ("broken", "question", "held", "not tried")


@dataclass(frozen=True)
class LossRelations(Result):
    """What was found of each relation of a loss function.

    Attributes:
        verdicts: one for each relation; of items and blocks of weights one each.
        num_examples: how many examples the batch holds.
        loss: the loss of the batch, with noise made symmetric.
    """

    verdicts: tuple[Verdict, ...]
    num_examples: int
    loss: float

    def of(self, outcome: RelationOutcome) -> tuple[Verdict, ...]:
        """Return the verdicts of an outcome: "held", "broken", "question" or "not tried"."""
        return tuple(each for each in self.verdicts if each.outcome == outcome)

    def __getitem__(self, relation: str) -> Verdict:
        """Return the verdict of a relation by its name."""
        known = {each.relation: each for each in self.verdicts}
        if relation not in known:
            raise KeyError(f"{relation!r} is no relation here. {names_hint(relation, known)}")
        return known[relation]

    def check(self, *, ignore: Iterable[str] = ()) -> None:
        """Raise a LossError that names each broken relation; questions and what was not tried pass.

        Args:
            ignore: relations that are not meant to hold, such as "twice" for a sum; "slope" is the slope of every block.
        """
        left = _ignored_names(self.verdicts, ignore)
        broken = [each for each in self.of("broken") if not left & {each.relation, _relation_family(each)}]
        if broken:
            raise LossError("\n".join([_broken_heading(len(broken)), *map(_verdict_line, broken)]))

    def __rich__(self) -> RenderableType:
        from truestep.core.rich_imports import Group

        shown = [outcome for outcome in _OUTCOMES if self.of(outcome)]
        counts = ", ".join(f"{len(self.of(outcome))} {outcome}" for outcome in shown)
        lists = [facts_table(outcome, map(_fact_of_verdict, self.of(outcome))) for outcome in shown]
        return Group(f"Relations over {plural(self.num_examples, 'example')}: {counts}", *lists)


def relations(
    loss: Callable[[Any], Any],
    batch: Any,
    *,
    trains: Any,
    dim: int = 0,
    decomposable: bool = True,
    causal: bool = False,
) -> LossRelations:
    """Try on a loss function the relations that any right training keeps, and return what was found of each.

    The loss is computed on altered batches, forty times or so: its examples in another order, each twice, one alone, an item made
    constant, padding changed, the weights moved along the gradient. Noise is made symmetric for that: examples get the same random
    numbers, dropout is off, batch normalisation uses its stored statistics. Weights, gradients, buffers, modes, hooks and random
    states are afterwards what they were.

    Args:
        loss: a function of a batch that returns a scalar or a value for each example.
        batch: a batch as the loss takes it, better of six examples or more; tensors in any nesting.
        trains: what the loss trains: a module, its parameters, an optimizer or a learner.
        dim: the dimension of the batch's tensors that holds the examples: 1 for sequences first.
        decomposable: False for a loss whose examples mix by its meaning, as a contrastive one's.
        causal: whether no token may see later ones.

    Raises:
        BatchError: it can't be told from the batch where its examples lie.
        LossError: the loss returns something else, or needs no gradient.
        OptionError: nothing is trained.
    """
    if not callable(loss):
        raise LossError(
            f"ts.relations(loss, ...) was given {a_type(loss)} and needs the loss as a function of the batch, since it is "
            "computed on other batches too: ts.relations(lambda batch: criterion(net(batch[0]), batch[1]), batch, trains=net)."
        )
    try:
        examples = find_examples(batch, dim)
    except UnclearExamplesError as error:
        raise BatchError(
            f"ts.relations can't tell where the examples of this batch lie: {error}. Give tensors with one row an example, in a "
            "tuple or a dict, or dim=1 for sequences first."
        ) from None
    trials = Trials(loss, examples, find_trained(trains))
    try:
        trials.begin()
        verdicts = tuple(tried_relations(trials, decomposable=decomposable, causal=causal))
        return LossRelations(verdicts, examples.count, trials.whole.value)
    finally:
        trials.end()


def _fact_of_verdict(verdict: Verdict) -> tuple[str, str]:
    lines = [verdict.numbers, verdict.why, f"first seen: {verdict.place}" if verdict.place else ""]
    return verdict.relation, "\n".join(filter(None, lines))


def _relation_family(verdict: Verdict) -> str:
    return verdict.relation.partition(":")[0]


def _ignored_names(verdicts: Iterable[Verdict], ignore: Iterable[str]) -> set[str]:
    names = {ignore} if isinstance(ignore, str) else set(ignore)
    known = {each.name for each in RELATIONS} | {each.relation for each in verdicts}
    for name in names - known:
        raise LossError(f"check(ignore=[{name!r}]): there is no such relation. {names_hint(name, known)}")
    return names


def _broken_heading(count: int) -> str:
    return (
        f"{plural(count, 'relation')} that any right training keeps {'is' if count == 1 else 'are'} broken:"
    )


def _verdict_line(verdict: Verdict) -> str:
    numbers = f" ({verdict.numbers})" if verdict.numbers else ""
    place = f" First seen: {verdict.place}." if verdict.place else ""
    return f"  {verdict.relation}{numbers}: {verdict.why}.{place}"
