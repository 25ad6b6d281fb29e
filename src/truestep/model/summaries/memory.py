# SPDX-License-Identifier: Apache-2.0
"""Memory of a training step, by running two of them on tensors without values and noting every storage that lives."""

import copy
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim import SGD, AdamW, Optimizer
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from truestep.core.errors import OptionError, names_hint
from truestep.core.module_inspection import as_module
from truestep.core.text_formatting import error_line
from truestep.model.calling import (
    Arguments,
    forward_arguments,
    map_forward_arguments,
    preserve_model_state,
    run_forward,
    tensors_in_structure,
)


class LiveStorageBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all storages that operations give, for as long as they live."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._known: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def note(self, tensors: Iterable[Any]) -> None:
        """Count storages that are not counted yet."""
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                continue
            storage = tensor.untyped_storage()
            if storage not in self._known:
                self._known.add(storage)
                size = storage.nbytes()
                self.now += size
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._subtract_freed_bytes, size).atexit = False

    def _subtract_freed_bytes(self, size: int) -> None:
        self.now -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.note(pytree.tree_leaves(result))
        return result


T = TypeVar("T")


def copy_model_with(model: nn.Module, change: Callable[[Tensor], Tensor]) -> nn.Module:
    """Return a deep copy of the model with every tensor replaced by `change(tensor)`; no values are copied."""
    memo: dict[int, object] = {}
    for tensor in _parameters_and_buffers(model):
        if id(tensor) not in memo:
            new = change(tensor.detach())
            is_parameter = isinstance(tensor, nn.Parameter)
            memo[id(tensor)] = nn.Parameter(new, requires_grad=tensor.requires_grad) if is_parameter else new
    return copy.deepcopy(model, memo)


def _parameters_and_buffers(model: nn.Module) -> Iterator[Tensor]:
    yield from model.parameters()
    yield from model.buffers()
    for module in model.modules():
        for name, value in vars(module).items():  # tensors that were never registered, in lists and dicts too
            if name not in ("_parameters", "_buffers", "_modules"):
                yield from tensors_in_structure(
                    value if isinstance(value, Tensor | list | tuple | dict) else None
                )


def to_meta_tensor(tensor: Tensor) -> Tensor:
    """Return the tensor without its values."""
    return tensor.to("meta")


def to_meta_tensor_except_lengths(tensor: Tensor) -> Tensor:
    """Do the same, but leave whole numbers in one dimension on the CPU: torch reads the lengths of sequences there."""
    is_lengths = tensor.dim() == 1 and tensor.is_cpu and not tensor.is_floating_point()
    return tensor if is_lengths else to_meta_tensor(tensor)


def run_without_values(
    run: Callable[[nn.Module, Arguments], T], model: nn.Module, arguments: Arguments
) -> tuple[T | None, str]:
    """Return what `run` gives for a copy without values; None, and why in short, where the model does not run so."""
    for change in (to_meta_tensor, to_meta_tensor_except_lengths):
        try:
            made = copy_model_with(model, to_meta_tensor)
            return run(made, map_forward_arguments(arguments, change)), ""
        except Exception as error:  # noqa: BLE001 - whatever a model does without values
            cause = error.__cause__ or error
    return None, error_line(cause)[:150]


def initialize_lazy_layers(model: object, batch: Any, owner: str) -> tuple[nn.Module, Arguments, list[str]]:
    """Return the module and what its forward takes; for lazy layers a copy that the batch has sized, and a note of it."""
    module = as_module(model, owner)
    arguments = forward_arguments(module, batch)
    if not any(torch.nn.parameter.is_lazy(each) for each in (*module.parameters(), *module.buffers())):
        return module, arguments, []
    with preserve_model_state(module):
        sized = copy.deepcopy(module)
        run_forward(sized, arguments)
    note = "Lazy layers were sized by this batch in a copy; the model itself still waits for its first batch."
    return sized, arguments, [note]


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
    micro_batch: int | None,
    with_values: bool,
) -> TrainingMemory:
    """Run two steps of the mean of the outputs of a copy, by default under FakeTensorMode, and return what lived."""
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    living = LiveStorageBytes()
    with nullcontext() if with_values else fake, torch.enable_grad():
        if with_values:
            made = copy.deepcopy(model)
        else:
            made = copy_model_with(model, fake.from_tensor)
            arguments = map_forward_arguments(arguments, fake.from_tensor)
        parts = _first_micro_batches(arguments, micro_batch)
        with living:
            make, dtype = optimizer_maker(optimizer), PRECISIONS[precision]
            return _measure_two_steps(made.train(), arguments, parts, living, make=make, dtype=dtype)


def _first_micro_batches(arguments: Arguments, micro_batch: int | None) -> list[Arguments]:
    """Return the whole batch, or its first two parts: from the second one on the gradients of those before are there."""
    first = next((each for each in tensors_in_structure(arguments) if each.dim()), None)
    if micro_batch is None or first is None or micro_batch >= len(first):
        return [arguments]
    rows = len(first)

    def cut_rows(tensor: Tensor, start: int) -> Tensor:
        has_rows = tensor.dim() > 0 and len(tensor) == rows
        return tensor.narrow(0, start, min(micro_batch, rows - start)) if has_rows else tensor

    return [map_forward_arguments(arguments, partial(cut_rows, start=start)) for start in (0, micro_batch)]


def _measure_two_steps(
    model: nn.Module,
    arguments: Arguments,
    parts: list[Arguments],
    living: LiveStorageBytes,
    *,
    make: OptimizerMaker,
    dtype: torch.dtype | None,
) -> TrainingMemory:
    noted = [living.now]
    for tensors in (model.parameters(), model.buffers(), tensors_in_structure(arguments)):
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
        activations = max([_forward_and_backward(model, part, dtype, living) for part in parts])
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


def _forward_and_backward(
    model: nn.Module, part: Arguments, dtype: torch.dtype | None, living: LiveStorageBytes
) -> int:
    """Go forward and backward; return what the forward kept for the backward."""
    before = living.now
    loss = _mean_output_loss(model, part, dtype)
    kept = living.now - before
    loss.backward()  # type: ignore[no-untyped-call]
    return kept


def _mean_output_loss(model: nn.Module, arguments: Arguments, dtype: torch.dtype | None) -> Tensor:
    device = next((each.device.type for each in model.parameters()), "cpu")
    with torch.autocast(device, dtype) if dtype else nullcontext():
        outputs = tensors_in_structure(model(*arguments[0], **arguments[1]))
        parts = [each.float().mean() for each in outputs if each.requires_grad]
    if not parts:
        raise OptionError("No output depends on a trainable parameter, so there is no training step.")
    return torch.stack(parts).sum()


def optimizer_maker(optimizer: "str | OptimizerMaker") -> OptimizerMaker:
    """Return what makes the optimizer that is meant."""
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZERS:
            known = names_hint(optimizer, OPTIMIZERS)
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
