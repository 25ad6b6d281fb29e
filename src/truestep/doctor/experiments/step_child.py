# SPDX-License-Identifier: Apache-2.0
"""What a child does that goes on to the next steps of the optimizers: it notes losses and gradients, and ends."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter

from truestep.doctor.experiments.autocast_off import switch_autocast_off
from truestep.doctor.experiments.batch_changes import Change
from truestep.doctor.experiments.batch_leaf_usage import DataFlowTracker
from truestep.doctor.experiments.custom_backward import custom_backward_note
from truestep.doctor.experiments.example_count_detection import CountFactorMode
from truestep.doctor.experiments.first_data_uses import DataUse, DataUseFinder
from truestep.doctor.experiments.follower_base import StepFollower
from truestep.doctor.experiments.forward_state_reset import PreservedModuleState
from truestep.doctor.experiments.gradient_norms import clip_without_bound
from truestep.doctor.experiments.graph_cut_removal import DetachAsIdentity
from truestep.doctor.experiments.in_memory_batch import write_batch_in_memory
from truestep.doctor.experiments.in_process_child import ChildLife, unseen
from truestep.doctor.experiments.in_step_batch import BatchTensorsByUse, module_call_recorder
from truestep.doctor.experiments.load_replay import can_load_further, examples_handed_over, load_further_batch
from truestep.doctor.experiments.loss_constants import HeldConstants
from truestep.doctor.experiments.loss_start import LossStartFinder, TorchCallCounter
from truestep.doctor.experiments.outcome import ChildOutcome, ObservedStep, move_parameters, sampled_gradients
from truestep.doctor.experiments.skip_reasons import STEPS_OF_OTHERS
from truestep.doctor.experiments.step_followers import make_followers
from truestep.doctor.forks.fork import ContinuingChild
from truestep.doctor.relations.examples import Examples, UnclearExamplesError
from truestep.doctor.relations.mixing import RowSumRecorder
from truestep.doctor.relations.noise import SEED, SymmetricNoise
from truestep.doctor.relations.trials.cuts import GraphCuts
from truestep.doctor.runtime.wrapping import WatchWrappers

_SECOND = 2
MOST_BATCHES = 64  # of an accumulation
_MOST_OF_OTHERS = 4  # steps of optimizers that had not stepped before
AMID = "a backward came between the last step and the batch"
Call = Callable[..., Any]


@dataclass(frozen=True)
class StepPlan:
    """What is known of the steps before a child is forked."""

    iterator: object  # the one that hands over the batch
    examples: Examples
    parameters: Mapping[str, Tensor]  # of the optimizers that step
    optimizers: Sequence[Optimizer]
    num_steps: int  # of optimizers, from one batch, or window of batches, to the next
    layers: Mapping[str, nn.Module]
    batches_ahead: int = 0  # so many batches are handed over before the one that is used
    steps_together: bool = True  # whether each optimizer makes one of them
    criteria: Mapping[str, nn.Module] = field(default_factory=dict)  # of the script's own, by name
    in_full_precision: bool = False  # whether autocast is off
    in_memory: Mapping[str, Tensor] | None = None  # the batch's tensors, where no loader hands it over
    at_use: BatchTensorsByUse | None = None  # the batch's tensors, where the step makes them
    has_batch: bool = True  # whether it is known what the batch is

    @property
    def is_from_loader(self) -> bool:
        """Whether a loader hands over the batch, and so says that its rows are examples."""
        return self.in_memory is None and self.at_use is None

    def holds_parameters_of(self, optimizer: Optimizer) -> bool:
        """Whether the optimizer holds any of the parameters, itself or as a wrapper of one that does."""
        known = {id(each) for each in self.parameters.values()}
        return any(id(each) in known for group in optimizer.param_groups for each in group["params"])


class StepChild:
    """A child that goes on to the steps that use its batch."""

    def __init__(
        self,
        going_on: ContinuingChild,
        plan: StepPlan,
        change: Change,
        directions: Mapping[str, Tensor],
        factors: Sequence[Any] | None = None,
    ) -> None:
        self._plan = plan
        self._change = change
        self._directions = directions
        self._life = ChildLife(going_on, self._complete_outcome)
        self._waiting = plan.batches_ahead
        self._losses: list[float] = []
        self._gradients: dict[str, Tensor | None] | None = None
        self._versions: dict[str, int] = {}
        self._left: list[Tensor | None] = []  # by the last backward, for the parameters
        self._in_closure: Optimizer | None = None
        self._num_calls = 0  # of a closure
        self._num_of_others = 0  # steps
        self._kept: list[tuple[Tensor, Tensor]] = []
        self._noise: SymmetricNoise | None = None
        self._sight: DataFlowTracker | None = None
        self._rows: RowSumRecorder | None = None
        self._cuts: GraphCuts | None = None
        self._opened: DetachAsIdentity | None = None
        self._followers: list[StepFollower] = []
        self._first_use: LossStartFinder | None = None
        self._uses: DataUseFinder | None = None
        self._constants = HeldConstants(factors) if change.holds_constants else None
        counted = plan.parameters.values()
        self._counts = CountFactorMode(change.counts, counted, factors) if change.counts else None
        self._entered = ExitStack()
        self._depth = 0  # of backwards within one another
        # whether the batches before the one that is used have gone backward without a step
        self._is_amid = False

    def begin(self) -> Any:
        """Put in place what follows the steps; return the batch that is handed over."""
        self._life.listen()
        examples, change, plan = self._plan.examples, self._change, self._plan
        self._install_wrappers()
        self._versions = {name: each._version for name, each in plan.parameters.items()}
        if self._constants is not None:
            self._entered.enter_context(self._constants)
        if self._counts is not None:
            self._entered.enter_context(self._counts)
        if not self._waiting and change.at is None:
            self._clear_and_move_parameters()
        change.set_option(plan.criteria)
        count = change.count(examples)
        if change.keeps_buffers:
            self._entered.enter_context(PreservedModuleState(plan.layers.values()))
        self._noise = SymmetricNoise(
            count,
            frozen=self._frozen_buffers(),
            tensors=plan.parameters.values(),
            seed=SEED + change.noise,
        )
        if plan.at_use is not None:
            self._uses = self._entered.enter_context(DataUseFinder(plan.parameters.values(), self._alter_use))
            WatchWrappers().method(nn.Module, "__call__", module_call_recorder(self._uses))
            return None
        batch = self._collated_example() if change.kind == "one collated" else change.batch(examples)
        if plan.in_memory is not None:
            write_batch_in_memory(plan.in_memory, batch)
        self._prepare_step(batch, count)
        return batch

    def _frozen_buffers(self) -> list[Tensor]:
        """Return the buffers that stay as they are."""
        layers = self._plan.layers.values() if self._change.keeps_buffers else ()
        return [each for module in layers for each in module.buffers(recurse=False)]

    def _prepare_step(self, batch: Any, count: int) -> None:
        assert self._noise is not None
        self._entered.enter_context(self._noise)
        if self._plan.in_full_precision:
            switch_autocast_off()
        self._install_step_observers(batch, count)

    def _alter_use(self, number: int, use: DataUse, given: Tensor) -> None:
        """Change a tensor of a batch that the step makes, where it is first used."""
        batch, seen = self._plan.at_use, self._life.seen
        assert batch is not None
        if number < batch.first:
            return
        if number == batch.first:  # what is drawn before makes the batch
            self._prepare_step(None, batch.count)
        seen.uses.append((use.shape, use.digest))
        if use.varies and number in batch.names:
            seen.varied.append(batch.item(number))
        with unseen():
            if (changed := batch.changed(number, given, self._change)) is not None:
                given.data = changed

    def _install_step_observers(self, batch: Any, count: int) -> None:
        """Put in place what looks at the step."""
        change, plan, enter = self._change, self._plan, self._entered.enter_context
        if change.at is not None:
            begin = self._disable_graph_cuts if change.opens_cuts else self._clear_and_move_parameters
            enter(TorchCallCounter(change.at, begin))
        elif change.records_rows:
            frozen, rolled = self._frozen_buffers(), change.rolled
            self._rows = enter(RowSumRecorder(count, plan.layers, in_full=True, frozen=frozen, rolled=rolled))
        elif change.opens_cuts:
            self._disable_graph_cuts()
        elif followers := make_followers(change, plan.layers, plan.parameters):
            self._followers = [enter(each) for each in followers]
        elif change == Change() and not plan.has_batch:
            self._first_use = enter(LossStartFinder(plan.parameters.values()))
        elif change == Change() and plan.at_use is None:
            self._sight = enter(DataFlowTracker(plan.examples.like(batch), plan.parameters.values()))
            self._sight.rests = self._waiting > 0

    def _disable_graph_cuts(self) -> None:
        self._opened = self._entered.enter_context(DetachAsIdentity())
        self._cuts = self._entered.enter_context(GraphCuts())
        WatchWrappers().function(torch.autograd, "grad", self._cuts.gradient)

    def _collated_example(self) -> Any:
        """Return a batch of one example as the loader makes it: what is padded is no longer than that example."""
        loads: Any = self._plan.iterator
        return loads._collate_fn([loads._dataset[next(iter(loads._index_sampler.sampler))]])

    def _clear_and_move_parameters(self) -> None:
        """Clear gradients, and move parameters, before the batch that is used, not before one that was held back."""
        if not self._change.second_call:
            self._clear_gradients()
        with unseen():
            if self._constants is not None:
                self._constants.moves(self._plan.parameters[name] for name in self._directions)
            move_parameters(self._plan.parameters, self._directions, self._change.by)

    def _clear_gradients(self) -> None:
        """Clear gradients, if asked, also of models that no optimizer holds: steps may read them there."""
        if self._change.cleared:
            parts = (each.parameters(recurse=False) for each in self._plan.layers.values())
            for each in chain(self._plan.parameters.values(), *parts):
                each.grad = None

    def _install_wrappers(self) -> None:
        wrappers = WatchWrappers()
        wrappers.method(torch.Tensor, "backward", self._wrap_backward)
        wrappers.function(torch.autograd, "backward", self._wrap_backward)
        wrappers.method(torch.Tensor, "register_hook", self._wrap_register_hook)
        wrappers.method(_BaseDataLoaderIter, "__next__", self._wrap_loader_next)
        for home in (nn.utils, nn.utils.clip_grad):
            wrappers.function(home, "clip_grad_norm_", clip_without_bound)
            wrappers.function(home, "clip_grad_value_", clip_without_bound)
        wrappers.exchange()
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)

    def _wrap_backward(self, original: Call) -> Call:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            outermost, self._depth = self._depth == 0, self._depth + 1
            roots = tensors if isinstance(tensors, (list, tuple)) else (tensors,)
            if outermost:
                with unseen():
                    self._before_backward(roots, kwargs)
            try:
                result = original(tensors, *args, **kwargs)
            finally:
                self._depth -= 1
            if outermost:
                with unseen():
                    self._after_backward(roots, args, kwargs)
            return result

        return backward

    def _before_backward(self, roots: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if self._change == Change():
            self._note_custom_backward(roots, kwargs)
            for each in (self._first_use, self._uses):
                if each is not None:
                    each.goes_backward(roots)
        if self._rows is not None and not self._waiting:
            self._rows.reaches(roots)
        for follower in self._followers:
            follower.goes_backward(roots)

    def _note_custom_backward(self, roots: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        own = "backward(inputs=...)" if kwargs.get("inputs") is not None else custom_backward_note(roots)
        self._life.seen.own_backward = self._life.seen.own_backward or own

    def _wrap_register_hook(self, original: Call) -> Call:
        def register_hook(tensor: Tensor, hook: Any) -> Any:
            self._life.seen.own_backward = "a hook on a tensor"
            return original(tensor, hook)

        return register_hook

    def _after_backward(self, roots: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        for follower in self._followers:
            follower.went_backward()
        if self._waiting:
            self._is_amid = True
            return
        weights = args[0] if args else kwargs.get("gradient", kwargs.get("grad_tensors"))
        weights = weights if isinstance(weights, (list, tuple)) else [weights] * len(roots)
        self._losses += [
            float((each.detach().double() * (1 if weight is None else weight)).sum())
            for each, weight in zip(roots, weights, strict=True)
            if isinstance(each, Tensor)
        ]
        self._gradients = sampled_gradients(self._plan.parameters)
        self._left = [each.grad for each in self._plan.parameters.values()]
        if self._in_closure is not None:
            optimizer, self._in_closure = self._in_closure, None
            self._note_step(optimizer)

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        if not self._plan.holds_parameters_of(optimizer):
            self._num_of_others += 1
            if self._num_of_others >= max(_MOST_OF_OTHERS, 2 * self._plan.num_steps):
                self._life.end()
        if self._waiting:
            self._is_amid = False
            return None
        for each in (self._sight, self._uses):
            if each is not None:
                each.rests = True
        closure = next((each for each in (*args[1:2], kwargs.get("closure")) if each is not None), None)
        if closure is not None and self._change.second_call:
            return args[:1], {**kwargs, "closure": self._wrap_closure(optimizer, closure)}
        with unseen():
            self._begin_step(optimizer, closure)
        return None

    def _wrap_closure(self, optimizer: Optimizer, closure: Call) -> Call:
        """Return a closure such that the gradients of its second call are told."""
        self._num_calls = 0

        def counted_closure() -> Any:
            self._num_calls += 1
            if self._num_calls == _SECOND:
                self._gradients, self._losses, self._in_closure = None, [], optimizer
                self._clear_gradients()
            return closure()

        return counted_closure

    def _begin_step(self, optimizer: Optimizer, closure: Call | None) -> None:
        self._life.seen.calls_closure |= closure is not None
        self._kept = (
            [(each, each.detach().clone()) for group in optimizer.param_groups for each in group["params"]]
            if self._plan.num_steps > 1
            else []
        )
        if closure is not None and self._gradients is None:
            self._in_closure = optimizer
        else:
            self._note_step(optimizer)

    def _note_step(self, optimizer: Optimizer) -> None:
        gradients = self._gradients
        now = [each.grad for each in self._plan.parameters.values()]
        are_others = any(one is not other for one, other in zip(now, self._left or now, strict=True))
        if gradients is None or are_others or self._counts is not None:
            # others were put there since the backward, as those of a worker's copy of the model, or they were divided
            gradients = sampled_gradients(self._plan.parameters)
        number = next((i for i, each in enumerate(self._plan.optimizers) if each is optimizer), -1)
        first = self._first_use.step() if self._first_use is not None else ()
        step = ObservedStep(number, self._losses, gradients, *first)
        if not step.losses and self._life.seen.steps:  # one loss for several optimizers
            before = vars(self._life.seen.steps[-1])
            step = ObservedStep(
                **{**before, "optimizer": number, "gradients": gradients, "shares_losses": True}
            )
        if not self._plan.holds_parameters_of(optimizer):
            return
        self._life.seen.overwritten += [
            name
            for name, each in self._plan.parameters.items()
            if each._version != self._versions.get(name) and not self._life.seen.steps
        ]
        self._life.seen.steps.append(step)
        self._losses, self._gradients = [], None
        if len(self._life.seen.steps) >= self._plan.num_steps:
            self._life.end()

    def _after_step(self, *_: Any) -> None:
        if self._change.second_call:
            self._life.end()
        self._is_amid = False  # also where a closure went backward within the step
        if self._sight is not None:
            self._sight.rests = self._waiting > 0
        if self._uses is not None:
            self._uses.rests = False
        with torch.no_grad(), unseen():  # so that rounding in this step is nothing to the next one
            for each, before in self._kept:
                each.copy_(before)

    def _wrap_loader_next(self, original: Call) -> Call:
        def __next__(iterator: Any) -> Any:  # noqa: N807
            seen = self._life.seen
            if seen.steps or (self._num_of_others and iterator is self._plan.iterator):
                self._life.end()
            if not can_load_further(iterator):
                self._life.end(failure="the step takes a further batch, which worker processes hold")
            if self._waiting and iterator is self._plan.iterator:
                self._use_held_back_batch()
            else:
                seen.other_loaders += iterator is not self._plan.iterator
                seen.num_batches += 1
            if seen.num_batches > MOST_BATCHES:
                self._life.end(failure=f"no optimizer stepped in {MOST_BATCHES} batches")
            if self._sight is None:
                return self._another_batch(iterator, load_further_batch(iterator, original))
            self._sight.rests = True  # what is loaded, and collated, is no use of the batch
            try:
                further = self._another_batch(iterator, load_further_batch(iterator, original))
                self._sight.note_further_batch(further)
                return further
            finally:
                self._sight.rests = self._waiting > 0

        return __next__

    def _another_batch(self, iterator: Any, batch: Any) -> Any:
        """Return a further batch of the step: with every example twice, where that is so of the first one, too."""
        if iterator is not self._plan.iterator or self._change.kind not in ("none", "twice"):
            return batch
        try:
            with unseen():
                examples = examples_handed_over(iterator, batch)
                self._life.seen.num_rows += examples.count
                return examples.twice() if self._change.kind == "twice" else batch
        except UnclearExamplesError as why:
            if self._change.kind == "twice":
                self._life.end(failure=f"of a further batch of the step: {why}")
        return batch

    def _use_held_back_batch(self) -> None:
        """The batch that was held back is used from here on."""
        self._waiting -= 1
        if self._waiting:
            return
        if self._is_amid:
            self._life.end(failure=AMID)
        with unseen():
            self._clear_and_move_parameters()

    def _complete_outcome(self, seen: ChildOutcome) -> None:
        if self._num_of_others and not (seen.steps or seen.failure or seen.error):
            seen.failure = STEPS_OF_OTHERS
        if self._noise is not None and (self._plan.at_use is None or seen.uses):
            seen.coarsest, seen.draws = self._noise.coarsest, self._noise.has_drawn
            seen.drawn, seen.stream = self._noise.drawn, self._noise.state()
        if self._sight is not None:
            seen.touched, seen.compared = self._sight.touched, self._sight.compared
            seen.foreign = self._sight.foreign
            seen.operations = {name: sorted(each) for name, each in self._sight.operations.items()}
        if self._uses is not None and self._plan.at_use is not None:
            seen.foreign = self._uses.why_not
            names = self._plan.at_use.names
            numbers = (number for number, each in enumerate(self._uses.found) if each.reaches_loss)
            seen.touched = sorted(self._plan.at_use.item(each) for each in numbers if each in names)
        seen.factors = self._constants.noted if self._constants is not None else []
        if self._counts is not None:
            seen.counts, seen.meets_count = self._counts.noted, self._counts.is_met
        seen.scores_samples = self._opened is not None and self._opened.scores_samples
        if self._cuts is not None and self._opened is not None:
            meant = {("data", line) for line in self._opened.sums.lines}
            seen.cuts = [f"{name} {line}" for name, line in self._cuts.found if (name, line) not in meant]
        for each in self._followers:
            each.tell(seen)
        seen.calls = self._rows.calls_that_reach() if self._rows is not None else []
