# SPDX-License-Identifier: Apache-2.0
"""What is known of the run so far: its optimizers, its models, its steps."""

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor, nn
from torch.optim import Optimizer

from truestep.doctor.finding import Place
from truestep.doctor.watcher import Forward
from truestep.doctor.watching.looking import first_tensor

WINDOW = 20  # the first steps are watched in full
PERIOD = 256  # of the later ones, two in so many: one compares with the one before
SAMPLE = 4  # of an optimizer's parameters, so many are followed one by one


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
    stale: bool = False  # the last backward added to gradients from before the last step
    num_stale_steps: int = 0
    marks: list[tuple[Tensor, int, int]] = field(
        default_factory=list
    )  # parameter, address and version of its gradient

    def parameters(self) -> Iterator[Tensor]:
        """Yield every parameter it holds."""
        for group in self.optimizer.param_groups:
            yield from group["params"]

    def forget(self) -> None:
        """Begin anew after a step."""
        self.num_backwards, self.was_reached, self.cleared_at = 0, False, None

    def has_gradients(self) -> bool:
        """Tell whether any parameter has a gradient."""
        return any(each.grad is not None for each in self.parameters())

    def sample(self) -> list[Tensor]:
        """Return a few parameters with a gradient, from the first to the last."""
        held = [each for each in self.parameters() if each.grad is not None]
        if len(held) <= SAMPLE:
            return held
        return [held[index * (len(held) - 1) // (SAMPLE - 1)] for index in range(SAMPLE)]

    def mark(self) -> None:
        """Remember which gradients there are, to see later whether anything replaced or changed them."""
        self.marks = [
            (each, _address(each.grad), each.grad._version) for each in self.sample() if each.grad is not None
        ]

    def unchanged_since_mark(self) -> bool:
        """Tell whether gradients are the ones marked: nothing cleared them, by whatever way."""
        return any(
            each.grad is not None and _address(each.grad) == address and each.grad._version == version
            for each, address, version in self.marks
        )


class Applied(NamedTuple):
    """One application of a model by the user's code."""

    model: nn.Module
    place: Place
    active: list[str]  # layers that act differently in training, and did
    training: bool  # the model's own mode
    recorded: bool  # whether its output holds a graph

    @classmethod
    def of(cls, forward: Forward, active: list[str]) -> "Applied":
        """Return what is kept of a forward."""
        output = first_tensor(forward.output)
        recorded = forward.gradients_on and output is not None and output.requires_grad
        return cls(forward.module, forward.place, active, forward.module.training, recorded)


def _address(gradient: Tensor) -> int:
    return (gradient._values() if gradient.is_sparse else gradient).data_ptr()


class Scene:
    """The state of one watched run."""

    def __init__(self) -> None:
        self.records: dict[int, OptimizerRecord] = {}
        # applied by the user's code; by identity, since a module may have an __eq__ of its own
        self._models: weakref.WeakValueDictionary[int, nn.Module] = weakref.WeakValueDictionary()
        self.model_names: set[str] = set()  # they outlive the models
        self.num_steps = 0
        self.num_backwards = 0
        self.compiled = False
        self.is_cut_short = False  # the code raised
        self.thorough = False  # whether checks that cost many steps were asked for
        self.gave_up: str | None = None  # why the watch ended before the run
        self.forwards_since_backward: list[Applied] = []
        self.trained_modes: dict[int, bool] = {}

    @property
    def models(self) -> list[nn.Module]:
        """Return the models that the user's code has applied, and that are still there."""
        return list(self._models.values())

    def add_model(self, model: nn.Module) -> None:
        """Note a model, also one that is known already."""
        self._models[id(model)] = model

    @property
    def in_window(self) -> bool:
        """Tell whether these are the first steps."""
        return self.num_steps < WINDOW

    def record(self, optimizer: Optimizer, place: Place | None = None) -> OptimizerRecord:
        """Return what is known of an optimizer, also of one that was made before the watch."""
        key = id(optimizer)
        if key not in self.records:
            self.records[key] = OptimizerRecord(optimizer, place or Place("<unknown>", 0))
        return self.records[key]

    def holding(self, parameters: Iterable[Tensor]) -> list[OptimizerRecord]:
        """Return the optimizers that hold any of these parameters."""
        wanted = {id(each) for each in parameters}
        return [each for each in self.records.values() if any(id(p) in wanted for p in each.parameters())]

    def stepping(self) -> list[OptimizerRecord]:
        """Return the optimizers that have stepped."""
        return [each for each in self.records.values() if each.num_steps]

    def is_trained(self, module: nn.Module) -> bool:
        """Tell whether an optimizer that steps holds parameters of this module."""
        held = {id(each) for record in self.stepping() for each in record.parameters()}
        return any(id(each) in held for each in module.parameters())

    def name_of(self, parameter: Tensor) -> str:
        """Return a parameter's name in the model that has it."""
        for model in self.models:
            for name, each in model.named_parameters():
                if each is parameter:
                    return f"{type(model).__name__}.{name}"
        return f"parameter of shape {tuple(parameter.shape)}"
