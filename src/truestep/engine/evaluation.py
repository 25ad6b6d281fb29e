# SPDX-License-Identifier: Apache-2.0
"""Evaluation: every example once, averaged by weight, with the learner found again as it was."""

import hashlib
import json
import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from truestep.core.argument_errors import is_argument_error
from truestep.core.device_specific import to_float64
from truestep.core.errors import BatchError, LossError, OptionError
from truestep.core.random_streams import random_key
from truestep.core.state_trees import map_tree_leaves
from truestep.core.text_formatting import a_type, plural
from truestep.engine.batch_unpacking_check import refuse_single_rows
from truestep.engine.batches import batch_to_device
from truestep.engine.class_index_metric_check import warn_of_class_numbers
from truestep.engine.data.batch_source import BatchSource, BatchWithOrigin
from truestep.engine.data.rank_data_check import ReadPlace, refuse_other_reading
from truestep.engine.example_counting import BatchCounting
from truestep.engine.loss_results import Weighted, negative_weights_error, pairwise_hint
from truestep.engine.modelless_metric_check import warn_if_no_model_called
from truestep.engine.out_of_memory import release_spent_gradients
from truestep.engine.parts import LearnerParts
from truestep.engine.processes.batch_row_shares import RankShare
from truestep.engine.processes.packing import pack_rank_message, unpack_rank_message
from truestep.engine.processes.world import World
from truestep.engine.rank_evaluation_check import EvaluationFacts, refuse_other_counts
from truestep.engine.shared_context import LearnerContext
from truestep.engine.strategies.buffers import refuse_other_buffers
from truestep.engine.strategies.division import shared_example
from truestep.engine.update_call_errors import (
    check_evaluation,
    explain_trainer_metrics,
    loss_call_error,
    report_failure_to_observer,
)

Values = Callable[[Any], Any]
_EVALUATION = 0xE7A1  # keeps the keys of evaluation apart from those of updates


def evaluate(learner: LearnerParts, values: Values, data: Any, metric: Any) -> Any:
    """Average `values(batch)` over the batches of `data`, or feed them to a `metric` object; the same on all processes."""
    check_evaluation(values, data, metric)
    world = learner.context.world
    if world is None:
        return _evaluate_batches(learner, values, data, metric)
    facts = EvaluationFacts(learner, values, data, metric)
    found = world.meet(f"an evaluation with {learner.name!r}", facts.number)
    try:
        facts.refuse_differing_facts(world, [number for (number,) in found])
        _refuse_differing_buffers(learner.context, world)
        return _evaluate_batches(learner, values, data, metric)
    except BaseException as error:
        if learner.weights.are_divided and (clear := world.explained(error)):
            raise clear from error
        world.failed(error)
        raise


def _refuse_differing_buffers(context: LearnerContext, world: World) -> None:
    """Have no process measure with other buffers than the rest: those that a forward has filled from its own examples."""
    places = [
        (name, buffer)
        for learner in context.learners.values()
        for name, buffer in learner.module.named_buffers()
        if buffer.numel() and learner.weights.buffer_rules.get(name) != "own"
    ]
    sums = json.dumps([_buffer_sum(buffer) for _, buffer in places])
    # Sums tell them apart, as text, in which NaN is equal to itself; of these a digest, whose size depends on no number of buffers.
    digest = hashlib.sha256(sums.encode()).digest()
    everybody = world.share_bytes(digest, "the buffers of an evaluation")
    if any(each != everybody[0] for each in everybody):
        names, buffers = zip(*places, strict=True)
        refuse_other_buffers(world, "an evaluation", names, buffers)


def _buffer_sum(buffer: Tensor) -> float:
    return float(torch.view_as_real(buffer).sum() if buffer.is_complex() else to_float64(buffer).sum())


def _evaluate_batches(learner: LearnerParts, values: Values, data: Any, metric: Any) -> Any:
    context = learner.context
    context.observer.starting()
    divides = isinstance(data, BatchSource)
    totals = _Totals(context.world, divides=divides) if metric is None else MetricFeed(metric, context.world)
    stopping = False
    own = [context.rank] if context.rank else []  # several processes: each draws for its own examples
    release_spent_gradients(context)
    with evaluation_mode(learner):
        for number, (batch, making, _) in enumerate(_compare_ranks_now_and_then(data, context.world)):
            context.random.set(random_key(context.seed, _EVALUATION, context.step, number, *own))
            counting = BatchCounting(making=making)
            is_here = not counting.is_empty(batch)
            if number == 0:
                refuse_single_rows(values, batch, making)
            seen = _with_lent_example(context, batch, counting, is_here=is_here)
            first = warn_if_no_model_called(values, learner) if number == 0 else nullcontext()
            with explain_trainer_metrics(values, batch), first:
                result = _evaluate_batch(learner, values, seen, is_looked_at=number == 0 and metric is None)
                totals.add(result if is_here else None, batch, counting)
            if stopping := context.observer.wants_to_stop():
                break
    if stopping:
        context.observer.stop()
    if context.on_evaluated is not None:
        context.on_evaluated(data)
    return totals.answer()


def _evaluate_batch(learner: LearnerParts, values: Values, seen: Any, *, is_looked_at: bool) -> Any:
    context = learner.context
    if seen is None:
        return None
    with learner.precision.autocast_context(context.device):
        result = _call_values(values, batch_to_device(seen, context.device), context)
    if is_looked_at:
        warn_of_class_numbers(values, result)
    return result


def _batches_to_evaluate(data: Any) -> Iterable[BatchWithOrigin]:
    """Return the batches, each with what its source knows of it."""
    if isinstance(data, BatchSource):
        return data.made_for_evaluation()
    return map(BatchWithOrigin, data.batches(0) if hasattr(data, "batches") else data)


def _compare_ranks_now_and_then(data: Any, world: World | None) -> Iterator[BatchWithOrigin]:
    """Compare what the ranks have read of a stream at its first batch, its second, fourth and so on, and at its end."""
    number, read = 0, ""
    for number, each in enumerate(_batches_to_evaluate(data), 1):
        read = each.read
        if world is not None and read and number & (number - 1) == 0:
            _compare_ranks(world, number, read, data)
        yield each
    if world is not None and read:
        _compare_ranks(world, number, read, data)


def _compare_ranks(world: World, number: int, read: str, data: Any) -> None:
    form, kind = (data.form(), data.fingerprint().get("kind")) if isinstance(data, BatchSource) else ("", "")
    refuse_other_reading(
        world, number, {"the data of an evaluation": ReadPlace(0, number, read, form, kind == "mixture")}
    )


def _call_values(values: Values, batch: Any, context: LearnerContext) -> Any:
    try:
        result = values(batch)
    except Exception as error:
        if isinstance(error, TypeError) and (wrong := loss_call_error(error, values, batch)):
            raise wrong from error
        if isinstance(error, RuntimeError) and "does not require grad and does not have a grad_fn" in str(
            error
        ):
            raise LossError(_NO_GRADIENTS) from error
        report_failure_to_observer(error, batch, context.observer)
        raise
    if result is None:
        raise LossError(
            "The function to evaluate returned None, so nothing was measured: it ends without a return. Return one value per "
            "example, for example return (scores.argmax(1) == labels).float()."
        )
    return result


def _with_lent_example(context: LearnerContext, batch: Any, counting: BatchCounting, *, is_here: bool) -> Any:
    """Return a batch; where it is empty and the model's weights are divided, an example of another process, else None.

    There all processes compute, or those with examples would wait for the weights of those without.
    """
    world = context.world
    if world is None or not context.strategy.divides_weights:
        return batch if is_here else None
    number, shares = counting.making.num_examples_of_all_ranks, counting.making.shares
    if shares is not None:  # the ranks have told one another
        counts = list(shares)
    elif number is None:
        counts = [int(each[0]) for each in world.meet("a batch of an evaluation", is_here)]
    else:  # its order says so on all ranks alike, or each has read it; who has read more calls a layer that others do not
        parts = (RankShare(rank, world.size).of(number) for rank in range(world.size))
        counts = [part.stop - part.start for part in parts]
    if all(counts) or not any(counts):
        return batch if is_here else None
    example = shared_example(batch, counting, counts, world)
    return batch if is_here else example


@contextmanager
def evaluation_mode(learner: LearnerParts) -> Iterator[None]:
    """Every learner in evaluation mode and back, part by part; no gradients; the caller's random stream put back."""
    context = learner.context
    was_measuring, context.is_measuring = context.is_measuring, True
    everybody = [other.module for other in context.learners.values()]
    modes = [(part, part.training) for module in everybody for part in module.modules()]
    caller = context.random.save()
    for module in everybody:
        # Everybody's, since the function may call another learner.
        module.eval()
    try:
        # Not inference_mode: its tensors could never be used by a later update (a table that a forward keeps), and it gains nothing
        # that matters: 0 to 2 % of a transformer or a convolution, 5 to 7 % of thirty layers of size 8 (docs/log.md).
        with torch.no_grad():
            yield
    finally:
        context.is_measuring = was_measuring
        for part, mode in modes:
            part.training = mode
        context.random.restore(caller)


class _Totals:
    """Weighted sums of named values in float64, read from the device once at the end."""

    def __init__(self, world: World | None, *, divides: bool) -> None:
        """`divides`: each of several processes is given other batches, by a source that knows of the others."""
        self._world, self._divides = world, divides
        self._seen = [0, 0]  # batches, and what has a value in them
        self._sums: dict[str, Tensor] = {}
        self._weight: Tensor | float = 0.0
        self._single = True
        self._least = torch.zeros(())  # of the weights: read once, at the end

    def add(self, result: Any, batch: Any, counting: BatchCounting) -> None:
        """Add what one batch gave; None where it, or this process's part of it, is empty."""
        self._seen[0] += 1
        if result is None:
            return
        num_examples = counting.try_count(batch)
        if isinstance(result, Weighted):
            weights = torch.ones_like(result.values) if result.weights is None else result.weights
            self._least = torch.minimum(self._least.to(weights.device), weights.min())
            named = {"loss": result.values, **result.metrics}
            self._single = self._single and not result.metrics
        else:
            named = dict(result) if isinstance(result, dict) else {"value": result}
            self._single = self._single and not isinstance(result, dict)
            weights = None
        if not named:
            raise LossError(
                "The function to evaluate returned an empty dict; return at least one value per example."
            )
        first = next(iter(named.values()))
        self._seen[1] += len(first) if getattr(first, "ndim", 0) else 0
        for name, values in named.items():
            self._check_values(name, values, weights, first, num_examples)
        weights = to_float64(torch.ones_like(first) if weights is None else weights)
        # In float64: a float32 sum stops growing by ones at 2**24 examples.
        total = weights.sum()
        for name, values in named.items():
            part = to_float64(values) * (total if values.ndim == 0 else weights)
            so_far = self._sums.get(name, torch.zeros((), dtype=torch.float64))
            self._sums[name] = so_far.to(part.device) + part.sum()
        self._weight = total + self._weight

    def _check_values(
        self, name: str, values: Any, weights: Tensor | None, first: Any, num_examples: int | None
    ) -> None:
        if not isinstance(values, Tensor):
            raise LossError(_not_a_tensor_message(name, values))
        if values.ndim == 0 and weights is None:
            raise LossError(
                "The function to evaluate returned one number for a batch, and batches can differ in size: a mean of means is not "
                "the mean, and of sums nobody knows over how many. Return one value per example, for example "
                "(scores.argmax(1) == labels).float()."
            )
        if values.ndim and values.shape != first.shape:
            raise LossError(
                f"The function to evaluate returned {name!r} of shape {tuple(values.shape)} beside another of shape "
                f"{tuple(first.shape)}. They are averaged over the same examples, and would broadcast and count some twice; "
                "bring all to one shape, for example (batch,)."
            )
        if weights is None and values.numel() != (num_examples or len(values)):
            raise LossError(
                f"The function to evaluate returned {name!r} of shape {tuple(values.shape)} for "
                f"{plural(num_examples or len(values), 'example')}; return one value per example, or ts.weighted(values, weights) "
                f"for values that count otherwise. {pairwise_hint(values)}".rstrip()
            )

    def _sum_over_ranks(self, world: World) -> None:
        """Add up what all processes have, in the order of ranks, so that all get the same bits."""
        sums = {name: float(total) for name, total in self._sums.items()}
        mine = [sums, float(self._weight), float(self._least), self._single, self._seen]
        found = map(json.loads, world.share_bytes(json.dumps(mine).encode(), "the end of an evaluation"))
        all_sums, weights, least, single, seen = zip(*found, strict=True)
        if not self._divides:
            refuse_other_counts(seen)
        for name in dict.fromkeys(name for each in all_sums for name in each):
            total = _exact_sum([each.get(name, 0.0) for each in all_sums])
            self._sums[name] = torch.tensor(total, dtype=torch.float64)
        self._weight, self._least, self._single = _exact_sum(weights), torch.tensor(min(least)), all(single)

    def answer(self) -> float | dict[str, float]:
        """Return the average, or the averages by name; of all processes' examples."""
        if self._world is not None:
            self._sum_over_ranks(self._world)
        if not self._sums:
            raise BatchError(
                "There was nothing to evaluate: the data gave no batch with an example in it. A generator that was used up gives "
                "none."
            )
        if self._least < 0:
            raise negative_weights_error()
        means = {name: float(total / self._weight) for name, total in self._sums.items()}
        return next(iter(means.values())) if self._single and len(means) == 1 else means


def _exact_sum(numbers: Sequence[float]) -> float:
    """Return the sum, rounded once; infinities and NaN as in any sum."""
    return math.fsum(numbers) if all(map(math.isfinite, numbers)) else sum(numbers)


class MetricFeed:
    """A metric that is being given the results of an evaluation; of several processes, rank 0's is given those of all."""

    def __init__(self, metric: Any, world: World | None) -> None:
        self._metric, self._world = metric, world
        # Rank 0's sees everything: to gather again would count it several times, or wait for ranks that don't come.
        self._syncs = getattr(metric, "sync_on_compute", None)
        metric.reset()

    def add(self, result: Any, *_: object) -> None:
        """Add what one batch gave; None where it, or this process's part of it, is empty."""
        if self._world is None:
            if result is not None:
                self._update_metric(result)
            return
        # in the order of ranks, which is that of the samples
        for each in self._world.gather_bytes_to_rank_0(pack_rank_message(result), "a batch of an evaluation"):
            if (found := unpack_rank_message(each)) is not None:
                self._update_metric(found)

    def _update_metric(self, result: Any) -> None:
        given = result if isinstance(result, tuple) else (result,)
        try:
            self._metric.update(*given)
        except TypeError as error:
            if not is_argument_error(error, through="torchmetrics."):
                raise
            raise OptionError(
                f"The function given to evaluate returned {len(given)} value{'s' * (len(given) != 1)} a batch, which "
                f"{type(self._metric).__name__}.update does not take ({error}). Return what it takes, several as a tuple: "
                "return net(inputs), labels."
            ) from error

    def answer(self) -> Any:
        """Compute the metric, and leave it as it was; all processes are given the answer."""
        try:
            if self._world is None or not self._world.rank:
                found = self._compute_metric()
        finally:
            self._metric.reset()
        if self._world is None:
            return found
        what = "the answer of a metric"
        if self._world.rank:
            return unpack_rank_message(self._world.broadcast_bytes(None, what))
        self._world.broadcast_bytes(_pack_answer(self._metric, found), what)
        return found

    def _compute_metric(self) -> Any:
        if self._world is not None and self._syncs:
            self._metric.sync_on_compute = False
        try:
            return map_tree_leaves(_scalar_as_number, self._metric.compute())
        finally:
            if self._world is not None and self._syncs:
                self._metric.sync_on_compute = self._syncs


def _pack_answer(metric: Any, answer: Any) -> bytes:
    packed = pack_rank_message(answer)
    try:
        unpack_rank_message(packed)
    except pickle.UnpicklingError as error:
        raise OptionError(
            f"{type(metric).__name__}.compute returned {a_type(answer)} that can't be given to the other processes: only "
            "numbers, strings, tensors, and lists, tuples and dicts of these travel. Have compute return such values."
        ) from error
    return packed


def _scalar_as_number(value: Any) -> Any:
    """Return a scalar tensor of a metric's answer as a number, a longer one as a list."""
    if isinstance(value, Tensor):
        return value.item() if value.numel() == 1 else value.tolist()
    return value


_NO_GRADIENTS = (
    "A backward was asked for inside net.evaluate(...), which measures and trains nothing: it switches gradients off around its "
    "function. To train, write net.update(loss, batch) in the loop itself, without .backward(); here return the values alone. For "
    "a gradient that is itself measured, of the inputs say, compute it within torch.enable_grad()."
)


def _not_a_tensor_message(name: str, values: Any) -> str:
    """Say what a function to evaluate returns, where it returned no tensor."""
    given = f"{values!r}, a number of Python's," if isinstance(values, int | float) else a_type(values)
    is_several = isinstance(values, tuple | list)
    several = " Of several values return a dict: {'accuracy': right, 'loss': losses}." if is_several else ""
    return (
        f"The function to evaluate returned {given} for {name!r}: of a whole batch nobody knows how many examples it counts for. "
        "Return a tensor with one value per example, without .item(), .mean() or numpy: (scores.argmax(1) == labels).float(), or "
        f'F.cross_entropy(scores, labels, reduction="none").{several}'
    )
