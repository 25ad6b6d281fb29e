# SPDX-License-Identifier: Apache-2.0
"""Micro-batch losses added up at full size."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from truestep.core.tensor_bytes import tensor_version
from truestep.doctor.check import QUESTION, RISK, At, SourceCheck, Unsure
from truestep.doctor.finding import Place
from truestep.doctor.runtime.history import LossCall
from truestep.doctor.source.events import TraceEvent, TrainingLoop
from truestep.doctor.source.execution import execution_of
from truestep.doctor.source.library_accumulators import (
    accumulators_entered,
    library_loss_divisor,
)
from truestep.doctor.source.loss_scaling import divides_gradients, is_scaled
from truestep.doctor.source.module import SourceModule
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

MOST = 256  # backwards without a step that are followed
WINDOWS = 3  # steps in a row, each of as many backwards
_NOT_DIVIDED = "The loss of each micro-batch is not divided by their number"
SCALED = ("SGD",)  # optimizers whose steps are as long as the gradients; Adam divides by their size


class AccumulatedLossNotDivided(SourceCheck, Watcher):
    """Gradients are accumulated over several batches, but the loss is not divided by their number.

    Why: k batches give the sum of their gradients, k times their mean: SGD takes steps k times as long.

    Bad:
        for _ in range(3):
            for i, (x, y) in enumerate(loader):
                F.cross_entropy(net(x), y).backward()  # here
                if (i + 1) % 4 == 0 or i + 1 == len(loader):
                    opt.step()
                    opt.zero_grad()

    Good:
        for _ in range(3):
            for i, (x, y) in enumerate(loader):
                loss = F.cross_entropy(net(x), y) / min(4, len(loader) - i // 4 * 4)
                loss.backward()
                if (i + 1) % 4 == 0 or i + 1 == len(loader):
                    opt.step()
                    opt.zero_grad()

    Fix: divide by how many batches the step is made of: k, and fewer for the last step of an epoch; where batches
    differ in size, weight each by its samples or tokens. Where a library accumulates, have it divide: hand an
    Accelerator the loss, and do for a Hugging Face Trainer what the message says.

    Evidence: the plain form of row 5 of docs/mistakes.md; 186 repositories, beds E, Q: 0 true, 1 debatable, 8
    false.
    """

    code = "GRAD005"
    words = ("backward",)

    def read(self, module: SourceModule) -> Iterator[At | Unsure]:
        """Report the backward of an accumulating loop in which nothing divides or weights the loss."""
        for trace in module.traces:
            for loop in trace.training_loops():
                backward = _accumulating_backward(loop)
                if (
                    backward is None
                    or backward.receiver is None
                    or _is_loss_divided_by_library(loop, backward)
                ):
                    continue
                if divides_gradients(module):
                    continue
                scaled = is_scaled(module, backward.receiver)
                if scaled is None:
                    yield Unsure(backward.node, "what the loss is made of can't be seen from here")
                elif not scaled:
                    yield At(backward.node, f"{_NOT_DIVIDED}{_library_fix_line(loop, backward)}", QUESTION)

    def __init__(self) -> None:
        self.losses: list[
            tuple[LossCall, int, Tensor]
        ] = []  # means over a batch, since the last backward; as they are, and the number each was
        self.means: list[Tensor] = []  # what went backward since the last step
        self.trainer: object = None  # of a library, that the last backward was called by
        self.num_clips = 0  # since the last step
        self.places: list[
            Place | None
        ] = []  # of the backwards since the last step; None where one was of anything else
        self.targets: list[Tensor] = []  # of their losses, kept so that no address comes again
        self.windows: list[int] = []  # backwards of each step, while they are alike

    def on_loss(self, history: WatchHistory, loss: LossCall) -> None:
        """Remember a loss that is a mean, and may go backward."""
        if loss.value.requires_grad and loss.options.get("reduction", "mean") == "mean":
            self.losses.append((loss, tensor_version(loss.value), loss.value.detach().clone()))

    def on_clear(self, history: WatchHistory, records: list[OptimizerRecord], place: Place) -> None:
        """What is cleared is not added up."""
        self.places, self.targets, self.means = [], [], []

    def on_clip(self, history: WatchHistory, parameters: list[Tensor], place: Place) -> None:
        """A clip changes gradients once."""
        self.num_clips += 1

    def on_backward(self, history: WatchHistory, tensors: tuple[Tensor, ...], place: Place) -> None:
        """Note a backward of one such loss as it is."""
        alone = len(tensors) == 1 and not history.is_seeded
        self.trainer = _accumulating_trainer()
        whole = [
            (loss, mean)
            for loss, version, mean in self.losses
            if alone
            and (
                _is_loss_unmodified(loss, version, tensors[0])
                or _is_same_loss_value(self.trainer, tensors[0], mean)
            )
        ]
        self.places.append(place if whole else None)
        self.targets += [loss.target for loss, _ in whole]
        self.means += [mean for _, mean in whole]
        self.losses = []
        if len(self.places) > MOST:
            self.places, self.targets, self.means = [None], [], []

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report the third step in a row, a Trainer's first, on the sum of as many means, of different batches, from one line."""
        places, self.places = self.places, []
        num_clips, self.num_clips = self.num_clips, 0
        num_batches, self.targets = len({each.data_ptr() for each in self.targets}), []
        means, self.means = self.means, []
        kind = type(record.optimizer).__name__
        alike = len(set(places)) == 1 and None not in places and 1 < len(places) == num_batches
        is_sum = not (record.has_closure or record.num_stale_steps or record.changes_gradients(num_clips))
        if not alike or not is_sum or (kind not in SCALED and self.trainer is None):
            self.windows = []
            return
        self.windows.append(len(places))
        enough = WINDOWS if self.trainer is None else 1  # a Trainer says itself that it accumulates
        if len(self.windows) == enough and len(set(self.windows)) == 1 and places[0] is not None:
            text = f"Each step adds up the gradients of {len(places)} batches, and their losses are not divided by it"
            total = sum(float(each) for each in means)
            numbers = {"backwards": len(places), "sum": total, "mean": total / len(places)}
            yield Observation(places[0], text + _trainer_message_end(self.trainer, numbers), RISK, numbers)


def _accumulating_trainer() -> object:
    """Return the Trainer of Hugging Face in whose `training_step` this is called, if it accumulates."""
    if (library := sys.modules.get("transformers.trainer")) is None:  # nothing of it is imported for this
        return None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        owner = frame.f_locals.get("self") if frame.f_code.co_name == "training_step" else None
        if isinstance(owner, library.Trainer):
            return owner if owner.args.gradient_accumulation_steps > 1 else None
        frame = frame.f_back
    return None


def _library_fix_line(loop: TrainingLoop, backward: TraceEvent) -> str:
    """Return the line to write where an object of a library counts the batches, and divides what is handed to it."""
    contexts = execution_of(loop.trace, loop.path).contexts
    for frame in backward.path:
        if frame.kind != "with" or backward.receiver is None:
            continue
        for row, _ in accumulators_entered(contexts, frame):
            managers = (item.context_expr for item in getattr(frame.node, "items", ()))
            methods = (each.func for each in managers if isinstance(each, ast.Call))
            for each in methods:
                if isinstance(each, ast.Attribute) and each.attr == row.enters:
                    owner = ast.unparse(each.value)
                    line = f"{owner}.backward({ast.unparse(backward.receiver)})"
                    return f", since {owner} divides what goes backward through it alone. Write {line}."
    return "."


def _is_loss_unmodified(loss: LossCall, version: int, handed: Tensor) -> bool:
    return loss.value is handed and tensor_version(handed) == version


def _is_same_loss_value(trainer: object, handed: Tensor, mean: Tensor) -> bool:
    """Tell the same number, which a Trainer has multiplied by its processes, one, and Accelerate divided by 1."""
    return (
        trainer is not None
        and handed.shape == mean.shape
        and bool(handed.detach() == mean)
        and bool(mean != 0)
    )


def _trainer_message_end(trainer: object, numbers: dict[str, Any]) -> str:
    """Return the end of the message: with a Trainer, what it takes for done, and the line that has it divide."""
    if trainer is None:
        return "."
    told = f": {numbers['sum']:.4g} in place of their mean, {numbers['mean']:.4g}. The Trainer divides by "
    told += (
        "gradient_accumulation_steps only where it takes nobody else to; gradients and the logged loss are "
    )
    told += f"{numbers['backwards']} times as large, and max_grad_norm clips as many times more. "
    if getattr(trainer, "compute_loss_func", None) is not None:
        return told + "Have compute_loss_func divide the sum of its losses by num_items_in_batch."
    if getattr(trainer, "loss_is_scaled_for_ga", None):
        return told + "Write `trainer.loss_is_scaled_for_ga = False` before trainer.train()."
    return told + (
        "This model takes **kwargs, so num_items_in_batch is left to it, and its loss ignores that. Write "
        "`trainer.model_accepts_loss_kwargs = False` before trainer.train()."
    )


def _is_loss_divided_by_library(loop: TrainingLoop, backward: TraceEvent) -> bool:
    """Tell whether a library divides the loss, or may."""
    return library_loss_divisor(execution_of(loop.trace, loop.path).contexts, backward) != 1


def _accumulating_backward(loop: TrainingLoop) -> TraceEvent | None:
    """Return the backward that runs several times in every window, if its gradients are meant to add up."""
    run = execution_of(loop.trace, loop.path)
    windows = run.full_windows(loop.optimizer)
    same = {event.node for window in windows for event in window.backwards}
    meant = all(each.is_accumulating for each in windows) and any(each.of("zero_grad") for each in windows)
    if not run.is_certain or run.is_named or not windows or len(same) != 1 or not meant:
        return None
    return windows[0].backwards[0]
