# SPDX-License-Identifier: Apache-2.0
"""Relations of the examples of a batch with one another: their order, their number, who moves with whom."""

from dataclasses import replace

import torch

from truestep.doctor.relations.gradients import GradientComparison, add_gradients, compare_with_halves
from truestep.doctor.relations.trials.trial import Trials
from truestep.doctor.relations.verdict import RelationOutcome, Verdict

_TOO_FEW = "the batch holds one example"
_MOST_SPREAD = 0.02
_NO_MEAN = (
    "the loss is no mean over the examples: a ratio of sums, terms with denominators of their own, or a function of a mean. That "
    "is right where it is meant; micro-batches then give another gradient"
)
_BUT_FOR_FACTOR = "but for the factor that `twice` tells of"


def permuted(trials: Trials) -> Verdict:
    """The same examples in another order give the same gradient."""
    if trials.examples.count < 2:
        return Verdict("permuted", "not tried", _TOO_FEW)
    other = trials.gradients(trials.examples.permuted(), trials.examples.count)
    compared = trials.compare(other.gradients, trials.whole.gradients)
    if compared.difference <= trials.tolerance:
        return _difference_verdict("permuted", "held", compared)
    mixing = trials.mixing()
    return _difference_verdict(
        "permuted",
        "broken",
        compared,
        "the same examples in another order give another gradient, so numbers of one example reach another's place. Where "
        "dimensions are exchanged write transpose() or permute(); view() and reshape() keep the order of the numbers",
        str(mixing) if mixing else None,
    )


def halves(trials: Trials) -> Verdict:
    """The gradient is a weighted mean of those of its halves, each in the whole's size."""
    if trials.examples.count < 2:
        return Verdict("halves", "not tried", _TOO_FEW)
    first, second = (
        trials.gradients(half, trials.examples.count).gradients for half in trials.examples.halves()
    )
    compared = compare_with_halves(first, second, trials.whole.gradients, least_share=trials.least_share)
    if compared.difference <= trials.tolerance:
        return _difference_verdict("halves", "held", compared)
    return _mixing_verdict("halves", compared, trials)


def _mixing_verdict(relation: str, compared: GradientComparison, trials: Trials) -> Verdict:
    """Return the verdict where an example's gradient depends on the others: a mistake, or right under a meaning."""
    mixing = trials.mixing()
    if mixing is None:
        return _difference_verdict(relation, "question", compared, _NO_MEAN)
    if mixing.meaning:
        why = f"the examples mix. That is right if {mixing.meaning}; micro-batches then give another gradient"
        return _difference_verdict(relation, "question", compared, why, str(mixing))
    why = (
        "an example's gradient depends on which others are in the batch. Give both sides of an operation one shape, such as "
        "(batch,) and not (batch, 1), and let softmax, attention and norms run along other dimensions than the examples'"
    )
    return _difference_verdict(relation, "broken", compared, why, str(mixing))


def twice(trials: Trials) -> Verdict:
    """Every example twice gives the same gradient."""
    examples = trials.examples
    found = trials.attempt(examples.twice(), 2 * examples.count)
    if isinstance(found, str):
        return _failure_verdict("twice", found, "twice as many examples")
    compared = trials.compare(found.gradients, trials.whole.gradients)
    if compared.difference <= trials.tolerance:
        return Verdict("twice", "held", expected=1, found=compared.factor or 1, unit="factor of the gradient")
    mixing = trials.mixing()
    place = str(mixing) if mixing else None
    if compared.factor and abs(compared.factor - 1) > _MOST_SPREAD:
        advice = "Write a mean over the examples in place of a sum" if mixing is None else "The examples mix"
        return Verdict(
            "twice",
            "question" if mixing and mixing.meaning else "broken",
            "the gradient grows or shrinks with the number of examples, so the last, smaller batch and another batch size train at "
            f"another learning rate. {advice}",
            expected=1,
            found=compared.factor,
            unit="factor of the gradient",
            place=place,
        )
    if mixing and mixing.meaning:
        return _difference_verdict("twice", "question", compared, f"right if {mixing.meaning}", place)
    why = (
        "one part of the loss grows with the number of examples and another does not, so their balance depends on the batch "
        "size. Write a mean over the examples in each term"
    )
    return _difference_verdict("twice", "broken", compared, why, place)


def one(trials: Trials) -> Verdict:
    """A batch of one example runs, and gives the gradient of that example twice."""
    examples = trials.examples
    alone = trials.attempt(examples.one(), 1)
    if isinstance(alone, str):
        return _failure_verdict("one", alone, "one example")
    grows = trials.once("twice", twice)
    if trials.once("halves", halves).outcome != "held" or (grows.outcome != "held" and not grows.expected):
        return Verdict("one", "held", "it runs; what it gives is not compared, as the examples mix")
    pair = trials.gradients(examples.take([0, 0]), 2)
    compared = trials.compare(alone.gradients, pair.gradients)
    if compared.difference <= trials.tolerance:
        return _difference_verdict("one", "held", compared)
    if grows.outcome != "held" and compared.factor:
        return Verdict("one", "held", _BUT_FOR_FACTOR)
    why = (
        "one example alone gives another gradient than the same example twice. Often squeeze() without a dimension takes the "
        "examples' away: write squeeze(-1)"
    )
    return _difference_verdict("one", "broken", compared, why)


def changed(trials: Trials) -> Verdict:
    """With one example changed the losses of the others stay."""
    before = trials.whole.values
    if before is None:
        return Verdict("changed", "not tried", "the loss function gives no value for each example")
    if trials.examples.count < 2:
        return Verdict("changed", "not tried", _TOO_FEW)
    outcome = trials.gradients(trials.examples.with_changed(0), trials.examples.count)
    assert outcome.values is not None
    first, second = (
        each.detach().double().flatten(1 if each.ndim > 1 else 0) for each in (before, outcome.values)
    )
    moved = float(
        (first[1:] - second[1:]).abs().max() / first.abs().max().clamp(min=torch.finfo(torch.float64).tiny)
    )
    unit = "largest change of another's loss, of the largest loss"
    verdict = Verdict("changed", "held", expected=0.0, found=moved, unit=unit)
    if moved <= trials.tolerance:
        return verdict
    mixing = trials.mixing()
    place = str(mixing) if mixing else None
    if mixing and mixing.meaning:
        return replace(verdict, outcome="question", why=f"right if {mixing.meaning}", place=place)
    why = "the loss of an example depends on another example"
    return replace(verdict, outcome="broken", why=why, place=place)


def micro_batches(trials: Trials) -> Verdict:
    """The gradients of two micro-batches make up that of the batch."""
    examples, name = trials.examples, "micro-batches"
    if examples.count < 2:
        return Verdict(name, "not tried", _TOO_FEW)
    if trials.once("halves", halves).outcome != "held":
        return Verdict(name, "not tried", "the examples mix, as `halves` says")
    cut = (examples.count + 1) // 2
    found = []
    for rows in (range(cut), range(cut, examples.count)):
        outcome = trials.attempt(examples.take(rows), len(rows))
        if isinstance(outcome, str):
            return _failure_verdict(name, outcome, f"{len(rows)} examples")
        found.append(outcome.gradients)
    whole = trials.whole.gradients
    compared = compare_with_halves(found[0], found[1], whole, least_share=trials.least_share)
    if compared.difference > trials.tolerance and trials.once("twice", twice).outcome != "held":
        compared = trials.compare(add_gradients(found[0], found[1]), whole)  # of a sum
        if compared.factor:
            return Verdict(name, "held", _BUT_FOR_FACTOR)
    if compared.difference <= trials.tolerance:
        return _difference_verdict(name, "held", compared)
    if not _is_mean_however_halved(trials):
        return _difference_verdict(name, "question", compared, _NO_MEAN)
    why = "the loss computes something else for another number of examples; look for a batch size that is written down"
    return _difference_verdict(name, "broken", compared, why)


def _is_mean_however_halved(trials: Trials) -> bool:
    """Whether batches of the same size show no mixing either, whichever examples are in which half."""
    examples, order = trials.examples, trials.examples.order()
    half = examples.count // 2
    for turn in range(examples.count):
        rows = [*order[turn:], *order[:turn]]
        first, second, rest = rows[:half], rows[half : 2 * half], rows[2 * half :]
        a, b = (
            trials.gradients(examples.take([*each, *each, *rest]), examples.count).gradients
            for each in (first, second)
        )
        compared = compare_with_halves(a, b, trials.whole.gradients, least_share=trials.least_share)
        if compared.difference > trials.tolerance:
            return False
    return True


def _failure_verdict(relation: str, error: str, given: str) -> Verdict:
    return Verdict(
        relation,
        "broken",
        f"a batch of {given} fails, as the last batch of an epoch may: {error}. Take sizes from the batch, as in len(x), and write "
        "squeeze(-1) in place of squeeze()",
    )


def _difference_verdict(
    relation: str,
    outcome: RelationOutcome,
    compared: GradientComparison,
    why: str = "",
    place: str | None = None,
) -> Verdict:
    of = f" of {compared.parameter}" if compared.parameter else ""
    return Verdict(
        relation,
        outcome,
        why,
        expected=0.0,
        found=compared.difference,
        unit=f"relative difference of the gradient{of}",
        place=place,
    )
