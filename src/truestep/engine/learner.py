# SPDX-License-Identifier: Apache-2.0
"""A learner: what is trained, and with what."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from truestep.engine import state as states
from truestep.engine.accumulating import Accumulating
from truestep.engine.averages import EMA, Average
from truestep.engine.batches import Batch, Split
from truestep.engine.clipping import Clip, clip_of
from truestep.engine.combinations import check_combination
from truestep.engine.compiling import Compiler
from truestep.engine.context import Context
from truestep.engine.evaluation import Values, evaluate
from truestep.engine.finite import FiniteCheck
from truestep.engine.fused import FusedStep
from truestep.engine.isolation import Statistics, buffer_places, spectral_places, statistics_places
from truestep.engine.late import LateFlags
from truestep.engine.optimizers import (
    OptimizerFactory,
    Parameters,
    choose_fused,
    has_sparse_gradients,
    make_optimizers,
    prepare_momentum,
)
from truestep.engine.precision import Precision, precision_named
from truestep.engine.precision.loss_scale import LossScale, Scaler
from truestep.engine.precision.weights import (
    cast_floats,
    cast_weights,
    named_parameters_for_optimizer,
    weights_back_after_error,
)
from truestep.engine.schedules import ScheduleFactory, Schedules
from truestep.engine.step import MOST_OVERFLOWS_IN_A_ROW, Update, nonfinite_error
from truestep.engine.transient import TransientBuffers
from truestep.engine.update import Loss, MicroBatch, Splitting, update_together
from truestep.errors import OptionError, check_number

Modules = nn.Module | Mapping[str, nn.Module] | Sequence[nn.Module]


@dataclass(frozen=True, kw_only=True)
class LearnerOptions:
    """How a learner is trained; see `Run.learner` for each."""

    name: str
    precision: str = "float32"
    clip: Clip | Callable[..., None] | None = None
    schedule: ScheduleFactory | None = None
    ema: EMA | None = None
    loss_scale: LossScale | float | str | None = None
    micro_batch: MicroBatch = None
    starts_at: int = 0
    compile: bool = False

    def __post_init__(self) -> None:
        check_number("run.learner", "starts_at", self.starts_at, example=1000)


class Learner:
    """One or several modules with what trains them; made by `Run.learner`. An update changes it and nothing else.

    Calling it calls its module, and attributes that it lacks are the module's: `net.parameters()`, `net.state_dict()`,
    `net.encoder(x)`. With several modules each is found by its name or number: `net["encoder"](x)`.
    """

    def __init__(
        self, modules: Modules, optimizer: OptimizerFactory, options: LearnerOptions, context: Context
    ) -> None:
        self.module = _one_module(modules)
        self.name = options.name
        self.context = context
        self.options: LearnerOptions = options
        self.precision: Precision = precision_named(options.precision)
        self._alone = [self]
        self.shows_average = False
        self._splitting = Splitting(options.micro_batch)
        self.clip: Clip | None = clip_of(options.clip)
        with weights_back_after_error(self.module):
            self._place_module()
            self._make_optimizers(optimizer)
        self.schedules = Schedules(options.schedule, self.optimizers, options.name)
        names, weights, masters = self.weight_names, self.weights, self.targets
        self.average = Average(names, weights, masters, options.ema) if options.ema else None
        self.compiler = Compiler() if options.compile else None
        self.starts_at = options.starts_at
        self.micro_batch_in_use: int | None = None
        self.attempts = self.updates = self.skipped = self.skipped_in_a_row = 0
        self.overflows_in_a_row = self.gradients_made = 0
        self.not_skipped = torch.zeros((), dtype=torch.bool, device=context.device)
        self.was_skipped = torch.ones((), dtype=torch.bool, device=context.device)
        self.late = LateFlags.of(self)
        self._register()

    def _place_module(self) -> None:
        device, mode = self.context.device, self.precision
        if not any(True for _ in self.module.parameters()):
            raise OptionError(
                f"{type(self.module).__name__} has no parameters, so there is nothing to train. Layers in a plain list or dict "
                "are not registered: use nn.ModuleList, nn.ModuleDict, or assign them as attributes."
            )
        _refuse_lazy_parameters(self.module)
        _refuse_shared_parameters(self.module, self.context, self.name)
        self.module.to(device)
        cast_weights(self.module, mode)
        # Only modes that keep all weights in one other type need their inputs brought to it.
        self._input_dtype = mode.weights if mode.weights != torch.float32 else None
        self._output_dtype = torch.float32 if mode.weights in (torch.float16, torch.bfloat16) else None

    def _make_optimizers(self, factory: OptimizerFactory) -> None:
        self.weight_names = [name for name, _ in self.module.named_parameters()]
        self.weights = list(self.module.parameters())
        named = list(named_parameters_for_optimizer(self.module, self.precision))
        self.targets = [parameter for _, parameter in named]
        self.has_half_weights: bool = any(p.dtype in (torch.float16, torch.bfloat16) for p in self.weights)
        self.has_sparse: bool = has_sparse_gradients(self.module)
        self.accumulated: dict[nn.Parameter, Tensor] = {}
        self.optimizers: list[torch.optim.Optimizer] = make_optimizers(
            factory, Parameters(named, self.module)
        )
        self.steps = [FusedStep(optimizer) for optimizer in self.optimizers]
        self.needs_closure: bool = any(
            isinstance(optimizer, torch.optim.LBFGS) for optimizer in self.optimizers
        )
        check_combination(self)
        scaling = self.precision.loss_scaling
        self.scaler = Scaler(LossScale.of(self.options.loss_scale), self.context.device) if scaling else None
        for index, optimizer in enumerate(self.optimizers):
            if reason := choose_fused(optimizer, self.context.device, sparse=self.has_sparse):
                fused = bool(optimizer.defaults.get("fused"))
                label = f"fused of {self.name}" + (f"[{index}]" if len(self.optimizers) > 1 else "")
                self.context.choose(label, fused, reason)
            # Where the device decides, any first step may be left out: no weight in the batch, a loss that is not finite.
            if scaling or self.context.device.type == "cuda":
                prepare_momentum(optimizer)
        self._choose_measures()

    def _choose_measures(self) -> None:
        """Decide what is remembered of the module, and what is measured of its gradients, at each update."""
        self.buffer_places = buffer_places(self.module)
        self.transient = TransientBuffers(self.module)
        self.spectral_places = spectral_places(self.module)
        self.statistics = Statistics(statistics_places(self.module))
        policy = self.context.nonfinite
        complex_weights = any(weight.is_complex() for weight in self.weights)
        self.measures_norm = (
            self.clip is not None or policy in ("skip", "rollback") or (complex_weights and policy == "raise")
        )
        # A loss scale looks at the gradients itself.
        checks = policy == "raise" and self.scaler is None and not self.measures_norm
        self.finite_check = FiniteCheck(self.context.device, self.weights) if checks else None

    def _register(self) -> None:
        if self.name in self.context.learners:
            raise OptionError(
                f"There is a learner called {self.name!r} already; give this one another name=, so that its metrics and part of "
                "a checkpoint can be told apart."
            )
        self.context.learners[self.name] = self

    # ------------------------------------------------------------------ the module

    def __call__(self, *inputs: Any, **named_inputs: Any) -> Any:
        """Call the module; inputs are brought to the type of its weights where a mode keeps them in another one."""
        if self._input_dtype is None:
            return self.module(*inputs, **named_inputs)
        output = self.module(
            *cast_floats(inputs, self._input_dtype), **cast_floats(named_inputs, self._input_dtype)
        )
        return output if self._output_dtype is None else cast_floats(output, self._output_dtype)

    def __getattr__(self, name: str) -> Any:
        if name == "module":  # not made yet
            raise AttributeError(name)
        return getattr(self.module, name)

    def __getitem__(self, key: str | int) -> nn.Module:
        """Return a part of a learner made of a dict or list of modules: `net["encoder"](x)`."""
        part: nn.Module = self.module[key]  # type: ignore[index]
        return part

    def __repr__(self) -> str:
        count = sum(parameter.numel() for parameter in self.weights)
        return f"Learner({self.name!r}, {type(self.module).__name__}, {count:,} parameters, {self.precision.name})"

    def layers_of(self, kinds: tuple[type[nn.Module], ...]) -> list[str]:
        """Return the names of the module's layers of these kinds that are in training mode."""
        return [
            name for name, part in self.module.named_modules() if isinstance(part, kinds) and part.training
        ]

    # ------------------------------------------------------------------ training

    @property
    def started(self) -> bool:
        """Whether this learner trains yet: `starts_at` batches have been counted."""
        return self.context.step >= self.starts_at

    def update(
        self,
        loss: Loss,
        batch: Batch,
        *,
        micro_batch: MicroBatch = None,
        split: Split | int | None = None,
        decomposable: bool = True,
    ) -> Update:
        """Make one update with the gradient of the mean of `loss(batch)`; nothing but this learner changes.

        Args:
            loss: a function of a batch that returns one loss per example, or `ts.weighted(...)`; it may be called
                several times and must have no side effects.
            batch: any structure of tensors; `split` says how to cut one without a leading dimension.
            micro_batch: the largest number of examples computed at once, "auto", or sizes that add up; the learner's
                own by default. It changes the result by rounding only.
            split: `ts.Split(count, take)`, or the dimension along which the examples lie.
            decomposable: False for a loss of the whole batch (contrastive), which must not be split.

        Raises:
            LossError: the loss has no gradient, the wrong shape, or (NonFiniteError) is NaN or infinite.
            BatchError: the batch is empty, or has to be split and can't be.
        """
        if micro_batch is None and split is None and decomposable:
            return update_together(self._alone, loss, batch, self._splitting)[0]
        chosen = micro_batch if micro_batch is not None or not decomposable else self.options.micro_batch
        return update_together(self._alone, loss, batch, Splitting(chosen, split, decomposable))[0]

    def accumulating(self, *, weight: float | None = None) -> Accumulating:
        """Make one update out of losses that are computed one after another in a `with` block.

        Scalars add up as they are; losses per example are averaged over all of them, or divided by `weight` where that
        is given (the total number of tokens, say). A forward must follow inside the block.

            with net.accumulating() as update:
                for part in parts:
                    update.backward(loss(part))
        """
        return Accumulating(self, weight)

    @property
    def learning_rate(self) -> float:
        """The learning rate of the first group of the first optimizer."""
        return float(self.optimizers[0].param_groups[0]["lr"])

    def step_optimizers(self) -> None:
        """Step the optimizers with the gradients that are there, and bring master weights to the module."""
        for step in self.steps:
            step()
        self.copy_masters()

    def copy_masters(self) -> None:
        """Round float32 master weights to the module's half-precision ones."""
        if not self.precision.master_weights:
            return
        with torch.no_grad():
            pairs = [(p, t) for p, t in zip(self.weights, self.targets, strict=True) if p is not t]
            torch._foreach_copy_([p for p, _ in pairs], [t for _, t in pairs])

    def note_applied(self) -> None:
        """Count an update that was applied: schedule and average move with it."""
        self.updates += 1
        self.skipped_in_a_row = self.overflows_in_a_row = 0
        self.schedules.step()
        if self.average is not None:
            self.average.update(self.updates)

    def note_skipped(self, *, overflow: bool = False) -> None:
        """Count an update that was skipped: nothing else moves."""
        self.skipped += 1
        self.skipped_in_a_row += 1
        self.overflows_in_a_row = self.overflows_in_a_row + 1 if overflow else 0

    def settle(self, *, skipped: bool, empty: bool, loss: float, norm: float) -> None:
        """Learn late what became of an update that the device decided on; average and statistics have followed already."""
        if not skipped:
            self.updates += 1
            self.skipped_in_a_row = self.overflows_in_a_row = 0
            self.schedules.step()
            return
        overflow = self.scaler is not None and math.isfinite(loss)
        self.note_skipped(overflow=overflow)
        searching = overflow and self.overflows_in_a_row < MOST_OVERFLOWS_IN_A_ROW
        if self.context.nonfinite == "raise" and not empty and not searching:
            raise nonfinite_error(self, loss, norm)

    def accumulate_in_float32(self) -> None:
        """Move half-precision gradients of a micro-batch into float32 sums."""
        for parameter in self.weights:
            if parameter.grad is not None and parameter.grad.dtype in (torch.float16, torch.bfloat16):
                gradient = parameter.grad.float()
                held = self.accumulated.get(parameter)
                self.accumulated[parameter] = gradient if held is None else held.add_(gradient)
                parameter.grad = None

    # ------------------------------------------------------------------ looking

    def evaluate(self, values: Values, data: Any, *, metric: Any = None, averaged: bool = False) -> Any:
        """Average `values(batch)` over `data` in evaluation mode, without gradients.

        Args:
            values: returns one value per example, `ts.weighted(...)`, or a dict of such vectors; with `metric` whatever
                `metric.update` takes.
            data: what `run.data` returned, or any iterable of batches.
            metric: a torchmetrics object (or any with `update`, `compute` and `reset`).
            averaged: use the moving average of the weights (`ema=`).

        Returns:
            A float, a dict of floats where several values are averaged, or what `metric.compute` gives.
        """
        if averaged:
            with self.averaged():
                return evaluate(self, values, data, metric)
        return evaluate(self, values, data, metric)

    @contextmanager
    def averaged(self) -> Iterator[nn.Module]:
        """Put the moving average in the place of the weights for a while, and the weights back."""
        if self.average is None:
            raise OptionError(
                f"{self.name!r} keeps no average of its weights; ask for one with run.learner(..., ema=ts.EMA())."
            )
        with self.average.in_place():
            self.shows_average = True
            try:
                yield self.module
            finally:
                self.shows_average = False

    # ------------------------------------------------------------------ state

    def training_state(self) -> dict[str, Any]:
        """Return everything that training on from here needs, as a tree of tensors and JSON values."""
        return states.learner_state(self)

    def check_training_state(self, state: dict[str, Any]) -> None:
        """Raise a CheckpointError, listing every difference, unless `state` fits this learner."""
        states.check_learner_state(self, state)

    def changed_options(self, state: dict[str, Any]) -> list[str]:
        """Return which options of the optimizers the code gives otherwise than `state`."""
        return states.changed_options(self, state)

    def changed_settings(self, state: dict[str, Any]) -> list[str]:
        """Return what the code now decides otherwise than when `state` was taken; the code's is used."""
        return states.changed_settings(self, state)

    def load_training_state(self, state: dict[str, Any]) -> None:
        """Take over what `training_state` returned."""
        states.load_learner_state(self, state)


def _one_module(modules: Modules) -> nn.Module:
    if isinstance(modules, nn.Module):
        return modules
    if isinstance(modules, Mapping):
        return nn.ModuleDict(dict(modules))
    if isinstance(modules, Sequence) and all(isinstance(module, nn.Module) for module in modules):
        return nn.ModuleList(modules)
    raise OptionError(
        f"A learner trains an nn.Module, a dict of them or a list of them; got {type(modules).__name__}."
    )


def _refuse_lazy_parameters(module: nn.Module) -> None:
    lazy = [
        name for name, p in module.named_parameters() if isinstance(p, nn.parameter.UninitializedParameter)
    ]
    if lazy:
        raise OptionError(
            f"{len(lazy)} parameters have no shape yet ({', '.join(lazy[:4])}): lazy layers learn it from their first input, and "
            "an optimizer, an average or a checkpoint can't be made before. Call the module once on an example, under "
            "torch.no_grad(), and give it to the learner then."
        )


def _refuse_shared_parameters(module: nn.Module, context: Context, name: str) -> None:
    for other in context.learners.values():
        owned = {id(parameter): key for key, parameter in zip(other.weight_names, other.weights, strict=True)}
        shared = [owned[id(parameter)] for parameter in module.parameters() if id(parameter) in owned]
        if shared:
            raise OptionError(
                f"{len(shared)} parameters ({', '.join(shared[:4])}) belong to the learner {other.name!r} already; in {name!r} too "
                "they would be stepped by two optimizers. Give shared layers to one learner and update both with one loss: "
                "ts.update([a, b], loss, batch)."
            )
