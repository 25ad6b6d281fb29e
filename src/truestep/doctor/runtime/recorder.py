# SPDX-License-Identifier: Apache-2.0
"""Writes down what happens in a run; nobody else writes to the history.

A method for each event of which something is noted: it takes what a wrapped call knows, and returns what the checks are
told of the event, or None where they are told nothing.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from truestep.doctor.finding import Place
from truestep.doctor.runtime.history import (
    WINDOW,
    ForwardCall,
    LossCall,
    ModelApplication,
    OptimizerRecord,
    WatchHistory,
)
from truestep.doctor.runtime.operations import is_graph_cut
from truestep.doctor.runtime.tensor_queries import (
    first_watched_tensor,
    is_plain_watched_tensor,
    watched_sensitive_layers,
)
from truestep.doctor.runtime.user_code_line import watched_user_line, watched_user_name, watched_user_place
from truestep.doctor.runtime.value_origins import MAX_DEPTH, WatchedOrigin

Facts = tuple[Any, ...] | None


class OptimizerSteps:
    """Which optimizers there are, what they hold, and whose steps are counted."""

    def __init__(self, history: WatchHistory) -> None:
        self.history = history
        self.holders: dict[int, int] = {}  # of each trained tensor the optimizer, both by identity
        self._sharing: set[int] = set()  # optimizers that hold a tensor which another holds too
        self._counted: OptimizerRecord | None = None  # the optimizer whose steps count
        self._num_uncounted = 0  # steps of other optimizers in a row
        self.stepped_optimizers: OptimizerRecord | None = None
        self._at_step: Optimizer | None = None  # whose step that is: a wrapper's makes another
        self._steps_of_wrappers: dict[int, int] = {}  # by identity, the steps by then of what they wrap

    def known(self, optimizer: Optimizer, place: Place | None = None) -> OptimizerRecord:
        """Return what is known of an optimizer, also of one that was made before the watch, or that wraps another."""
        records = self.history.records
        own = records.get(id(optimizer))
        if own is not None and len(records) == 1:
            return own
        found = self.history.record_of(optimizer)
        if found is None:
            found = records[id(optimizer)] = OptimizerRecord(optimizer, place or Place("<unknown>", 0))
        elif own is not None and own is not found:  # its constructor made it known as one of its own
            del records[id(optimizer)]
        return found

    def begin(self, optimizer: Optimizer) -> OptimizerRecord | None:
        """An optimizer is about to step; return what is known of it, or None for a step within a step of it."""
        record = self.known(optimizer)
        if self.stepped_optimizers is record and self._at_step is not optimizer:
            return None
        self._at_step = optimizer
        return record

    def count(self, optimizer: Optimizer) -> OptimizerRecord | None:
        """Count a step of an optimizer; return what is known of it, or None where what it wraps has counted it."""
        record = self.known(optimizer)
        if record.optimizer is not optimizer:
            before = self._steps_of_wrappers.get(id(optimizer), 0)
            self._steps_of_wrappers[id(optimizer)] = max(record.num_steps, before + 1)
            if record.num_steps > before:
                return None
        record.num_steps += 1
        return record

    def count_run(self, record: OptimizerRecord) -> int | None:
        """Count a step of the run, if this optimizer's are; return the new number.

        Of several optimizers the first that steps counts, until its training is over.
        """
        self._num_uncounted = 0 if self._counted is record else self._num_uncounted + 1
        if self._counted is None or self._num_uncounted > WINDOW:
            self._counted = record
        if self._counted is not record:
            return None
        self.history.num_steps += 1
        return self.history.num_steps

    def shares(self, optimizer: Optimizer) -> bool:
        """Tell whether an optimizer holds a tensor that another one holds too."""
        return id(optimizer) in self._sharing

    def read_gradient(self) -> None:
        """A gradient was read, by the optimizer whose step is at work or by the script."""
        if self.stepped_optimizers is not None:
            self.stepped_optimizers.reads_gradients = True
        else:
            self.history.num_gradient_reads += 1

    def look_at_weights(self) -> None:
        """Note which tensors the optimizers hold now."""
        self.holders = {}
        for key, record in self.history.records.items():
            for each in record.parameters():
                if (other := self.holders.setdefault(id(each), key)) != key:
                    self._sharing |= {other, key}

    def forget_tensors(self) -> None:
        """What was computed for a step is gone."""
        self.history.origins.forget()
        self.history.sums.forget()
        self.look_at_weights()


class AppliedModels:
    """The models of a run, under which names they are kept, and at which lines they are applied."""

    def __init__(self, history: WatchHistory) -> None:
        self.history = history
        self._applied_at: dict[
            tuple[int, Place], int
        ] = {}  # without gradients: model and line, and the steps by then
        self._of_steps: set[tuple[int, Place]] = set()

    def add(self, model: nn.Module) -> None:
        """Note a model, also one that is known already."""
        self.history.models_by_id[id(model)] = model

    def named(self, known: object) -> str:
        """Note the variable that holds a model or optimizer; return how it is shown."""
        self.history.names.pop(id(known), None)  # the identity of one that is gone may come again
        if name := watched_user_name(known):
            self.history.names[id(known)] = name
        return self.history.called(known)

    def comes_with_steps(self, forward: ForwardCall) -> bool:
        """Tell whether a model was applied without gradients at this line between two steps in a row, ever."""
        key, now = (id(forward.module), forward.place), self.history.num_steps
        if forward.gradients_on:  # a line may train and evaluate
            return False
        if self._applied_at.get(key, now) == now - 1:
            self._of_steps.add(key)
        self._applied_at[key] = now
        return key in self._of_steps

    def compiled(self, what: object) -> None:
        """A function or model is compiled, or called that was."""
        self.history.compiled = True
        if isinstance(what, nn.Module):
            known = id(what) in self.history.names
            self.history.unseen.add(self.history.called(what) if known else self.named(what))
        else:
            self.history.unseen.add(getattr(what, "__qualname__", type(what).__name__))


class RunningLayers:
    """The modules that are being applied, and whether functional dropout was at work since the last forward."""

    def __init__(self) -> None:
        self._layers: list[nn.Module] = []  # the innermost last
        self._drops = False

    @property
    def innermost(self) -> nn.Module | None:
        """The module that computes now."""
        return self._layers[-1] if self._layers else None

    def take_dropout_flag(self) -> bool:
        """Return whether functional dropout was at work, and forget it."""
        drops, self._drops = self._drops, False
        return drops

    def enter(self, module: nn.Module) -> None:
        """A module is applied."""
        if not self._layers:
            self._drops = False  # a checkpoint's recomputation drops too
        self._layers.append(module)

    def leave(self, module: nn.Module) -> bool:
        """A module has been applied; return whether the user's code did that itself."""
        while self._layers and self._layers.pop() is not module:
            pass  # calls that ended in an exception
        return not self._layers

    def dropped(self) -> None:
        """A functional dropout was at work."""
        self._drops = True

    def clear(self) -> None:
        """None is at work."""
        self._layers.clear()


class Recorder:
    """The history of one run, and the only one that writes it."""

    def __init__(self, history: WatchHistory) -> None:
        self.history = history
        self.steps = OptimizerSteps(history)
        self.models = AppliedModels(history)
        self.layers = RunningLayers()

    # ── what checks are told of ───────────────────────────────────────────────────────────────

    def on_optimizer(self, optimizer: Optimizer) -> Facts:
        """An optimizer was constructed."""
        self.history.records.pop(id(optimizer), None)  # the identity of one that is gone may come again
        record = self.steps.known(optimizer, watched_user_place())
        self.steps.look_at_weights()
        self.history.rows.begin_training(optimizer)
        return (record,)

    def on_forward(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> Facts:
        """A module was applied by the user's code."""
        if id(module) not in self.history.models_by_id:
            self.history.model_names.add(self.models.named(module))
        called = self.history.called(module)
        place, graph = watched_user_place(), torch.is_grad_enabled()
        forward = ForwardCall(module, args, kwargs, output, place, graph, called)
        self.models.add(module)
        drops = self.layers.take_dropout_flag()
        active = watched_sensitive_layers(module, training=True) or ["F.dropout"] * drops
        rows = self.history.rows.apply(forward, self.history.num_steps)
        application = ModelApplication.of(forward, active, rows, self.models.comes_with_steps(forward))
        self.history.forwards_since_backward.append(application)
        return (forward,)

    def on_layer(self, module: nn.Module, output: Any) -> Facts:
        """Any module, also within others, gave its output."""
        found = first_watched_tensor(output)
        if isinstance(module, torch.jit.ScriptModule):
            self.history.unseen.add(getattr(module, "original_name", type(module).__name__))
        return (module, output) if found is None or is_plain_watched_tensor(found) else None

    def on_operation(self, name: str, result: Any, given: list[Tensor], args: tuple[Any, ...] = ()) -> Facts:
        """An operation has been computed: remember where, for what it gave."""
        origins = self.history.origins
        origin = self._make_origin(name, result, given)
        made = [
            each for each in ((result,) if isinstance(result, Tensor) else result) if isinstance(each, Tensor)
        ]
        for each in made:
            origins.note(each, origin)
        if not made and len(origins.reads) < MAX_DEPTH and any(each.requires_grad for each in given):
            origins.reads.append(origin)
        if isinstance(result, Tensor) and result.requires_grad and result.dim() < 2:
            self.history.sums.note(result, args, origin)
        self.history.rows.follow(origin, given)
        return origin, given, result

    def _make_origin(self, name: str, result: Any, given: list[Tensor]) -> WatchedOrigin:
        path, line = watched_user_line(3)
        made_of = self.history.origins.before(given)
        weights_of = frozenset(
            {
                self.steps.holders[id(each)]
                for each in given
                if id(each) in self.steps.holders and each.requires_grad
            }.union(*(each.weights_of for each in made_of))
        )
        before = tuple(each for each in made_of if each.depth < MAX_DEPTH)
        depth = 1 + max((each.depth for each in before), default=0)
        layer = self.layers.innermost
        by_model = layer is not None and next(layer.parameters(), None) is not None
        is_learned = by_model or any(self.history.origins.is_learned(each) for each in given)
        cuts = is_graph_cut(result, given)
        return WatchedOrigin(name, path, line, layer, before, depth, cuts, weights_of, is_learned)

    def on_loss(self, name: str, given: Any, target: Any, options: dict[str, Any], value: Any) -> Facts:
        """A loss was computed."""
        if not isinstance(given, Tensor) or not isinstance(target, Tensor):
            return None
        self.on_operation(name, value, [given, target])
        if not is_plain_watched_tensor(given) or not is_plain_watched_tensor(target):
            return None
        return (LossCall(name, given, target, options, value, watched_user_place()),)

    def on_objective(self, tensors: Sequence[Tensor], is_seeded: bool = False) -> Facts:
        """Values are about to go backward; where they are seeded by the user, they weigh what that says."""
        self.history.is_seeded = is_seeded
        self.history.thread = self.history.thread or threading.get_ident()
        return tuple(tensors), watched_user_place()

    def on_backward(self, tensors: Sequence[Tensor]) -> Facts:
        """The user's backward is about to run."""
        self.history.rows.learn(tensors or None)
        for record in self.history.records.values():
            record.stale = record.num_steps > 0 and record.unchanged_since_mark()
        return tuple(tensors), watched_user_place()

    def on_clear(self, owner: Optimizer | nn.Module) -> Facts:
        """zero_grad() of an optimizer or a module has run."""
        place, mine = watched_user_place(), isinstance(owner, Optimizer)
        records = [self.steps.known(owner)] if mine else self.history.optimizers_holding(owner.parameters())  # type: ignore[arg-type, union-attr]
        for record in records:
            record.cleared_at = place if record.was_reached else record.cleared_at
            record.was_reached = False
            record.stale = False  # what it added to is gone with it
            record.marks = []
        return records, place

    def on_step(self, optimizer: Optimizer, has_closure: bool) -> Facts:
        """An optimizer is about to step."""
        record = self.steps.begin(optimizer)
        if record is None:
            return None
        if not record.num_steps:
            self.history.optimizer_names.add(self.models.named(optimizer))
        record.has_closure = has_closure
        stale = record.stale and record.num_backwards and record.holds_gradients()
        record.num_stale_steps = record.num_stale_steps + 1 if stale else 0
        self.steps.stepped_optimizers = record
        return record, watched_user_place()

    def on_stepped(self, record: OptimizerRecord) -> Facts:
        """An optimizer has stepped, and its step is counted."""
        self.steps.stepped_optimizers = None
        return record, watched_user_place()

    def on_epoch(self, source: Any) -> Facts:
        """A loader or a sampler begins anew."""
        self.history.rows.begin_pass(source)
        return source, watched_user_place()

    def on_evaluation(self) -> Facts:
        """What was applied, and not gone backward through until now, was evaluated."""
        applied, self.history.forwards_since_backward = self.history.forwards_since_backward, []
        rows = self.history.rows
        evaluated = [
            each
            for each in applied
            if (not each.is_of_step or rows.is_held_out_again(each.rows))
            and not (each.rows is not None and each.rows.is_thrown_away)
        ]
        rows.end_evaluation()
        return (evaluated,) if evaluated and self.history.num_steps else None

    def on_loaded(self, module: nn.Module, state: Any) -> Facts:
        """A module was given weights that were kept."""
        self.history.loaded.add(module)
        self.history.rows.load(module)
        return (module, state, watched_user_place()) if isinstance(state, Mapping) else None

    # ── what is only written down ─────────────────────────────────────────────────────────────

    def went_backward(self) -> None:
        """A backward has run."""
        self.history.num_backwards += 1
        self.history.forwards_since_backward.clear()
        for record in self.history.records.values():
            record.num_backwards += 1
            record.was_reached = record.was_reached or record.has_gradients()
            record.cleared_at = None if record.was_reached else record.cleared_at
            record.after_backward = record.gradient_marks()
            if record.stale:
                record.marks = record.after_backward

    def batch_loaded(self, loading: Any, batch: Any) -> None:
        """A pass over a loader gives a batch."""
        self.history.rows.load_batch(loading, batch)

    def differentiated(self) -> None:
        """Gradients were computed past backward(): what was applied was no evaluation."""
        self.history.forwards_since_backward.clear()
        self.history.rows.learn(None)

    def scheduled(self, scheduler: Any) -> None:
        """A schedule was constructed."""
        self.history.schedules.append((scheduler, watched_user_place()))

    def engine_updated(self) -> None:
        """Our engine has made an update in a script that is watched as a whole: its forwards were training."""
        self.history.num_backwards += 1
        self.differentiated()

    def used_by_engine(self, optimizer: Optimizer) -> None:
        """Our engine uses an optimizer, at this line of the user's if it is a new one."""
        self.steps.known(optimizer, watched_user_place())

    def begin_step(self, record: OptimizerRecord) -> None:
        """The checks were told of the last step: what comes belongs to the next one."""
        self.history.rows.end_step()
        self.steps.forget_tensors()
        _reset_record(record)
        record.marks = record.gradient_marks()

    def cut_short(self) -> None:
        """The code raised: a forward that no backward followed need not have been an evaluation."""
        self.history.rows.drop()
        self.history.forwards_since_backward.clear()
        self.history.is_cut_short = True

    def give_up(self, reason: str) -> None:
        """Nothing more is recorded."""
        self.history.gave_up = reason

    def look(self, live: bool) -> None:
        """The run is looked at closely from here on, or no more: marks from before a gap mean nothing."""
        self.history.num_looks += live
        self.steps.forget_tensors()
        self.history.rows.drop()
        self.layers.clear()
        for record in self.history.records.values():
            if live:
                record.marks = record.gradient_marks()
            else:
                record.marks = []
                _reset_record(record)


def _reset_record(record: OptimizerRecord) -> None:
    record.num_backwards, record.was_reached, record.cleared_at, record.after_backward = 0, False, None, []
