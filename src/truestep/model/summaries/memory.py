# SPDX-License-Identifier: Apache-2.0
"""Memory of a training step, by running two of them on tensors without values and noting every storage that lives."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim import SGD, AdamW, Optimizer

from truestep.core.errors import OptionError, nearest_names
from truestep.model.calling import Arguments, forward_tensors, map_forward_arguments
from truestep.model.summaries.copies import copy_model_with
from truestep.model.summaries.living import ModelLivingMemory

OptimizerMaker = Callable[[Any], Optimizer]
OPTIMIZERS: dict[str, OptimizerMaker] = {
    "sgd": lambda p: SGD(p, lr=0.1),
    "sgd-momentum": lambda p: SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: AdamW(p, lr=1e-3),
}
PRECISIONS = {"float32": None, "bf16-mixed": torch.bfloat16, "fp16-mixed": torch.float16}


@dataclass(frozen=True, kw_only=True)
class TrainingMemory:
    """Bytes of a training step after the first; `peak_bytes` is the most at one time, kernels' own scratch memory left out."""

    optimizer: str
    precision: str
    weights_bytes: int
    buffers_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    batch_bytes: int
    activations_bytes: int  # kept from the forward for the backward
    peak_bytes: int

    @property
    def passing_bytes(self) -> int:
        """What is at the peak more than all parts together: intermediate results of the backward or the optimizer's step."""
        lasting = self.weights_bytes + self.buffers_bytes + self.gradients_bytes + self.optimizer_bytes
        return max(self.peak_bytes - lasting - self.activations_bytes - self.batch_bytes, 0)


def training_memory(
    model: nn.Module,
    arguments: Arguments,
    optimizer: "str | OptimizerMaker",
    precision: str,
    *,
    with_values: bool,
) -> TrainingMemory:
    """Run two steps of the mean of the outputs of a copy, by default under FakeTensorMode, and return what lived."""
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    living = ModelLivingMemory()
    with nullcontext() if with_values else fake, torch.enable_grad():
        if with_values:
            made = copy.deepcopy(model)
        else:
            made = copy_model_with(model, fake.from_tensor)
            arguments = map_forward_arguments(arguments, fake.from_tensor)
        with living:
            return _two_steps(
                made.train(), arguments, optimizer_maker(optimizer), living, PRECISIONS[precision]
            )


def _two_steps(
    model: nn.Module,
    arguments: Arguments,
    make: OptimizerMaker,
    living: ModelLivingMemory,
    dtype: torch.dtype | None,
) -> TrainingMemory:
    noted = [living.now]
    for tensors in (model.parameters(), model.buffers(), forward_tensors(arguments)):
        living.note(tensors)
        noted.append(living.now)
    weights, buffers, batch = (after - before for before, after in pairwise(noted))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = make(trained)
    before = living.now
    for _ in range(2):  # the first step makes the optimizer's state
        optimizer.zero_grad()
        state = living.now - before
        living.peak = living.now
        loss = _loss(model, arguments, dtype)
        activations = living.now - before - state
        loss.backward()  # type: ignore[no-untyped-call]
        del loss
        gradients = sum(parameter.grad.nbytes for parameter in trained if parameter.grad is not None)
        optimizer.step()
    return TrainingMemory(
        optimizer=type(optimizer).__name__,
        precision=next(name for name, each in PRECISIONS.items() if each == dtype),
        weights_bytes=weights,
        buffers_bytes=buffers,
        gradients_bytes=gradients,
        optimizer_bytes=state,
        batch_bytes=batch,
        activations_bytes=activations,
        peak_bytes=living.peak,
    )


def _loss(model: nn.Module, arguments: Arguments, dtype: torch.dtype | None) -> Tensor:
    device = next((each.device.type for each in model.parameters()), "cpu")
    with torch.autocast(device, dtype) if dtype else nullcontext():
        outputs = forward_tensors(model(*arguments[0], **arguments[1]))
        parts = [each.float().mean() for each in outputs if each.requires_grad]
    if not parts:
        raise OptionError("No output depends on a trainable parameter, so there is no training step.")
    return torch.stack(parts).sum()


def optimizer_maker(optimizer: "str | OptimizerMaker") -> OptimizerMaker:
    """Return what makes the optimizer that is meant."""
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZERS:
            known = nearest_names(optimizer, OPTIMIZERS)
            raise OptionError(
                f"optimizer={optimizer!r} is not known. {known} Or give a function: lambda p: AdamW(p, lr=1e-3)."
            )
        return OPTIMIZERS[optimizer]
    if not callable(optimizer):
        raise OptionError(
            f"optimizer={optimizer!r} makes no optimizer. Give a name ({', '.join(OPTIMIZERS)}) or a function: "
            "lambda p: torch.optim.AdamW(p, lr=1e-3)."
        )
    return optimizer
