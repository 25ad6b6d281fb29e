# SPDX-License-Identifier: Apache-2.0
"""What is known of a run so far: its optimizers, its models, its steps. Checks read it; only the recorder writes."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from sys import getrefcount
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from truestep.core.tensor_bytes import tensor_version
from truestep.doctor.finding import Place
from truestep.doctor.runtime.loss_terms import WatchedSums
from truestep.doctor.runtime.tensor_queries import (
    first_watched_tensor,
    is_plain_watched_tensor,
    watched_last_operation,
)
from truestep.doctor.runtime.user_code_line import path_in_finding
from truestep.doctor.runtime.value_origins import WatchedOrigin, WatchedOrigins

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from truestep.doctor.runtime.row_records import RowBatch

WINDOW = 20  # the first steps are watched in full
SAMPLE = 4  # of an optimizer's parameters, so many are followed one by one


@dataclass(frozen=True)
class ForwardCall:
    """A module applied by the user's code itself (not by another module)."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    place: Place
    gradients_on: bool
    called: str  # the module, by the user's variable

    @property
    def numbers(self) -> Tensor | None:
        """The first tensor that it was given, if that holds real numbers side by side: what a check may compute with."""
        given = first_watched_tensor(self.args)
        return given if given is not None and is_plain_watched_tensor(given) else None

    @property
    def variable(self) -> str:
        """The user's variable alone, or the class where it has none."""
        return self.called.partition(" (")[0]


@dataclass(frozen=True)
class LossCall:
    """A call of a loss function of torch, before it is computed, and its value."""

    name: str
    input: Tensor
    target: Tensor
    options: dict[str, Any]
    value: Tensor
    place: Place


class MakingOperation(NamedTuple):
    """The operation that computed a value."""

    operation: str  # the empty text where it is not known
    told: str  # with its place and layer where these are known
    origin: WatchedOrigin | None = None

    def evidence(self) -> dict[str, Any]:
        """Return what a finding about the value shows."""
        place = f"{self.origin.path}:{self.origin.line}" if self.origin is not None else None
        return {"made_by": self.operation, "made_at": place}


class ModelApplication(NamedTuple):
    """What is kept of one application of a model by the user's code."""

    model: nn.Module
    place: Place
    active: list[str]  # layers that act differently in training, and did
    training: bool  # the model's own mode
    recorded: bool  # whether its output holds a graph
    rows: RowBatch | None  # what is kept of the batch, if that holds rows
    is_of_step: bool  # whether it comes with every step, as a progress figure or a bank of features does

    @classmethod
    def of(
        cls, forward: ForwardCall, active: list[str], rows: RowBatch | None, is_of_step: bool
    ) -> ModelApplication:
        """Return what is kept of a forward."""
        output = first_watched_tensor(forward.output)
        recorded = forward.gradients_on and output is not None and output.requires_grad
        training = forward.module.training
        return cls(forward.module, forward.place, active, training, recorded, rows, is_of_step)


class GradientMark(NamedTuple):
    """A gradient as it was: where its numbers lay, and how often they had been changed in place."""

    parameter: Tensor
    address: int
    version: int

    def is_kept(self) -> bool:
        """Tell whether it is the same still: nothing cleared it or added to it, by whatever way."""
        grad = self.parameter.grad
        return (
            grad is not None
            and watched_gradient_address(grad) == self.address
            and tensor_version(grad) == self.version
        )

    def is_changed(self, times: int) -> bool:
        """Tell whether it was replaced, or changed in place more than so many times."""
        grad = self.parameter.grad
        return (
            grad is None
            or watched_gradient_address(grad) != self.address
            or tensor_version(grad) - self.version > times
        )

    @property
    def has_hooks(self) -> bool:
        """Whether the user's code is given it when it is computed, and may give another."""
        return bool(self.parameter._backward_hooks or self.parameter._post_accumulate_grad_hooks)


@dataclass
class OptimizerRecord:
    """One optimizer, and what has happened to its gradients since its last step."""

    optimizer: Optimizer
    place: Place  # where it was made
    num_steps: int = 0
    num_backwards: int = 0  # since its last step
    was_reached: bool = False  # whether a backward since its last step or clear gave it gradients
    cleared_at: Place | None = None  # the last zero_grad() of gradients, if it got none after it
    has_closure: bool = False
    reads_gradients: bool = (
        False  # it was seen to, in a step; looked for where another holds the same parameters
    )
    stale: bool = False  # the last backward added to gradients from before the last step
    num_stale_steps: int = 0  # in a row
    marks: list[GradientMark] = field(default_factory=list)  # of a few gradients after the last step
    after_backward: list[GradientMark] = field(default_factory=list)  # and after the last backward

    @property
    def is_left(self) -> bool:
        """Whether nobody refers to the optimizer but this record, so that it makes no further step."""
        return _num_references(self) <= _OF_A_RECORD

    def parameters(self) -> Iterator[Tensor]:
        """Yield every parameter it holds."""
        for group in self.optimizer.param_groups:
            yield from group["params"]

    def has_gradients(self) -> bool:
        """Tell whether any parameter has a gradient."""
        return any(each.grad is not None for each in self.parameters())

    def holds_gradients(self) -> bool:
        """Tell whether any of a few gradients is other than 0: by hand they may be cleared to either."""
        return any(each.grad is not None and bool(each.grad.any()) for each in self.sample())

    def sample(self) -> list[Tensor]:
        """Return a few parameters with a gradient, from the first to the last."""
        return _evenly_spaced_sample([each for each in self.parameters() if each.grad is not None])

    def followed(self) -> list[Tensor]:
        """Return a few parameters, with a gradient or not, from the first to the last: always the same."""
        return _evenly_spaced_sample([each for each in self.parameters() if is_plain_watched_tensor(each)])

    def gradient_marks(self) -> list[GradientMark]:
        """Return what a few gradients are now, to see later whether anything replaced or changed them."""
        found = ((each, each.grad) for each in self.sample())
        return [
            GradientMark(each, watched_gradient_address(grad), tensor_version(grad))
            for each, grad in found
            if grad is not None
        ]

    def changes_gradients(self, num_clips: int) -> bool:
        """Tell whether the script changes gradients after the last backward, past clips, or has hooks that may."""
        if self.optimizer._optimizer_step_pre_hooks:
            return True
        return any(each.is_changed(num_clips) or each.has_hooks for each in self.after_backward)

    def unchanged_since_mark(self) -> bool:
        """Tell whether gradients are the ones marked: nothing cleared them, by whatever way."""
        return any(each.is_kept() for each in self.marks)


def _num_references(record: OptimizerRecord) -> int:
    return getrefcount(record.optimizer)


_OF_A_RECORD = _num_references(OptimizerRecord(cast("Any", object()), Place("", 1)))


def _evenly_spaced_sample(held: list[Tensor]) -> list[Tensor]:
    if len(held) <= SAMPLE:
        return held
    return [held[index * (len(held) - 1) // (SAMPLE - 1)] for index in range(SAMPLE)]


def watched_gradient_address(gradient: Tensor) -> int:
    """Return where a gradient's numbers lie."""
    return (gradient._values() if gradient.is_sparse else gradient).data_ptr()


class WatchHistory:
    """What has happened in one watched run."""

    def __init__(self, *, thorough: bool = False, is_whole: bool = False) -> None:
        self.thorough = thorough  # whether checks that cost many steps were asked for
        self.is_whole = is_whole  # whether the watch began before the script did
        self.loaded: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # given weights by load_state_dict()
        self.records: dict[int, OptimizerRecord] = {}  # by the identity of the optimizer
        self.schedules: list[tuple[Any, Place]] = []  # with where each was made
        # applied by the user's code; by identity, since a module may have an __eq__ of its own
        self.models_by_id: weakref.WeakValueDictionary[int, nn.Module] = weakref.WeakValueDictionary()
        self.names: dict[int, str] = {}  # the variables that hold models and optimizers, by their identity
        self.model_names: set[str] = set()  # they outlive the models
        self.optimizer_names: set[str] = set()
        self.num_steps = 0
        self.num_backwards = 0
        self.num_looks = 0  # the stretches that were looked at closely, this one among them
        self.num_gradient_reads = 0  # by the script itself, in looked-at steps
        self.is_seeded = False  # whether the last backward was given what to begin with, in place of 1
        self.compiled = False
        self.unseen: set[str] = set()  # what is compiled, by its name: its inside can't be followed
        self.is_cut_short = False  # the code raised, or so many steps were wanted
        self.gave_up: str | None = None  # why the watch ended before the run
        self.thread: int | None = None  # the one that first goes backward or steps
        self.forwards_since_backward: list[ModelApplication] = []
        self.origins = WatchedOrigins()
        self.sums = WatchedSums(self.origins)
        from truestep.doctor.runtime.train_eval_rows import (
            WatchedRows,
        )  # it needs torch, which checks import first when they run

        self.rows = WatchedRows(self.origins)

    @property
    def models(self) -> list[nn.Module]:
        """Return the models that the user's code has applied, and that are still there."""
        return list(self.models_by_id.values())

    @property
    def is_in_first_steps(self) -> bool:
        """Tell whether these are the first steps."""
        return self.num_steps < WINDOW

    def record_of(self, optimizer: object) -> OptimizerRecord | None:
        """Return what is known of an optimizer, or of the one that it wraps: a wrapper hands out the same groups.

        A schedule made for either writes the rates that both read. An optimizer of torch's that was made of another one's groups
        wraps none.
        """
        groups = getattr(optimizer, "param_groups", None) or [None]
        is_own = type(optimizer).__module__.startswith("torch.optim.")
        for record in self.records.values():  # what is wrapped was made before its wrapper
            known = record.optimizer.param_groups
            if known is groups or (known and known[0] is groups[0] and not is_own):
                return record
        return None

    def optimizers_holding(self, parameters: Iterable[Tensor]) -> list[OptimizerRecord]:
        """Return the optimizers that hold any of these parameters."""
        wanted = {id(each) for each in parameters}
        return [each for each in self.records.values() if any(id(p) in wanted for p in each.parameters())]

    def stepped_optimizers(self) -> list[OptimizerRecord]:
        """Return the optimizers that have stepped."""
        return [each for each in self.records.values() if each.num_steps]

    def is_trained(self, module: nn.Module) -> bool:
        """Tell whether an optimizer that steps holds parameters of this module."""
        held = {id(each) for record in self.stepped_optimizers() for each in record.parameters()}
        return any(id(each) in held for each in module.parameters())

    def user_names_for_pages(self) -> dict[str, str]:
        """Return what the user calls the things that a page calls net and opt, where there is one of the kind."""
        kinds = {"net": self.model_names, "opt": self.optimizer_names}
        named = {kind: next(iter(found)).partition(" (") for kind, found in kinds.items() if len(found) == 1}
        return {kind: name for kind, (name, is_variable, _) in named.items() if is_variable}

    def called(self, known: object) -> str:
        """Return a model or optimizer by the name of the user's variable and its class: `net (Sequential)`."""
        name, kind = self.names.get(id(known)), type(known).__name__
        return f"{name} ({kind})" if name else kind

    def made(self, value: Tensor, used_at: Place) -> MakingOperation:
        """Return which operation computed a value, past mere changes of shape, and where if that is known."""
        origin = self.origins.of(value)
        if origin is None:
            operation = watched_last_operation(value)
            return MakingOperation(operation, operation)
        origin = origin.past_changes_of_shape()
        return MakingOperation(origin.operation, self.told(origin, used_at), origin)

    def told(self, origin: WatchedOrigin, used_at: Place | None = None) -> str:
        """Return where a value was made: `softmax at network.py:42 (model.head.act)`."""
        where = "" if origin.place == used_at else f" at {path_in_finding(origin.path)}:{origin.line}"
        layer = f" ({self.module_path(origin.layer)})" if origin.layer is not None else ""
        return f"{origin.operation}{where}{layer}"

    def module_path(self, module: nn.Module) -> str:
        """Return a module's path in the model that has it: `net.head.act`."""
        for model in self.models:
            called = self.names.get(id(model)) or type(model).__name__
            for name, each in model.named_modules():
                if each is module:
                    return f"{called}.{name}" if name else called
        return type(module).__name__

    def parameter_name(self, parameter: Tensor) -> str:
        """Return a parameter's name in the model that has it."""
        for model in self.models:
            for name, each in model.named_parameters():
                if each is parameter:
                    return f"{self.names.get(id(model)) or type(model).__name__}.{name}"
        return f"parameter of shape {tuple(parameter.shape)}"
