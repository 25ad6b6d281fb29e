# SPDX-License-Identifier: Apache-2.0
"""`ts.summary`: a model's layers with shapes, parameters, multiply-adds, memory and, on request, times."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from truestep.core.device_specific import synchronize_device
from truestep.core.errors import ModelError, OptionError, check_choice, check_number, names_hint
from truestep.core.result_display import RenderableType, Result
from truestep.core.text_formatting import error_line
from truestep.model.calling import (
    Arguments,
    ForwardModulePath,
    preserve_model_state,
    run_forward,
    tensors_in_structure,
)
from truestep.model.summaries.flop_counting import (
    ForwardOperationCounts,
    ModuleCallRecord,
    count_operations,
    model_error_of_forward,
)
from truestep.model.summaries.memory import (
    PRECISIONS,
    OptimizerMaker,
    TrainingMemory,
    initialize_lazy_layers,
    optimizer_maker,
    training_memory,
)

_WITH_VALUES = "The memory of training was found with a copy, as the model does not train without values."


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One module under one name; what it shares with a layer before is counted there."""

    name: str
    type: str
    depth: int
    same_as: str | None  # the first name of a module that is held under several
    num_calls: int
    input_shapes: Any  # a tuple of sizes, a list of tuples for several tensors
    output_shapes: Any
    kernel_size: tuple[int, ...] | None
    num_parameters: int  # of it and the layers inside it
    num_own: int  # of it alone, those shared with a layer before left out
    num_trainable: int
    shared_parameters: tuple[str, ...]  # "weight = embedding.weight"
    multiply_adds: int  # of it and the layers inside it, over all calls
    dtype: str
    device: str
    size_bytes: int  # of its parameters and buffers, and of the layers inside it
    seconds: float | None  # of all calls in a forward


@dataclass(frozen=True, kw_only=True)
class Summary(Result):
    """What `ts.summary` found; totals count everything once."""

    model: str
    layers: tuple[Layer, ...]
    num_parameters: int
    num_trainable: int
    multiply_adds: int
    parameters_bytes: int
    buffers_bytes: int
    memory: TrainingMemory | None
    notes: tuple[str, ...]
    depth: int | None = None

    def __rich__(self) -> RenderableType:
        from truestep.model.summaries.screen import model_summary_table

        return model_summary_table(self)

    def layer(self, name: str) -> Layer:
        """Return the layer of this name."""
        found = {each.name: each for each in self.layers}
        if name not in found:
            raise OptionError(f"There is no layer {name!r}. {names_hint(name, filter(None, found))}")
        return found[name]


def summary(
    model: object,
    batch: Any,
    *,
    depth: int | None = None,
    optimizer: "str | OptimizerMaker | None" = "adamw",
    precision: str = "float32",
    micro_batch: int | None = None,
    time: bool = False,
) -> Summary:
    """Summarise a module (or a learner) on a batch: parameters, shapes, multiply-adds, memory of training.

    Shapes and multiply-adds are found on a copy without values, in the model's present mode; weights, statistics, mode,
    device and random state stay as they are. A multiply-add is one product and its addition in a matrix product or a
    convolution; biases, normalisations and activations count nothing.

    Args:
        model: the module.
        batch: what the forward takes: a tensor, a tuple of arguments, a dict of them by name.
        depth: how deep the printed table goes; the result has every layer.
        optimizer: for the memory of training: "sgd", "sgd-momentum", "adamw", or a function, lambda p: Optimizer(p); None
            leaves this memory out, which most of the time goes to.
        precision: "float32", "bf16-mixed" or "fp16-mixed".
        micro_batch: for the memory of training: how many rows of the batch are computed at a time, their gradients added up.
        time: whether to time each layer too, on the model itself.

    Raises:
        ModelError: the forward fails; the message names the module, what it got and the cause.
    """
    check_choice("ts.summary", "precision", precision, PRECISIONS)
    if depth is not None:
        check_number("ts.summary", "depth", depth, example=3)
    if micro_batch is not None:
        check_number("ts.summary", "micro_batch", micro_batch, example=32, least=1)
    if optimizer is not None:
        optimizer_maker(optimizer)
    module, arguments, notes = initialize_lazy_layers(model, batch, "ts.summary")
    with preserve_model_state(
        module
    ):  # a forward may draw random numbers on the CPU wherever its weights are
        counted = _count_operations_on_meta(module, arguments)
        memory, problem = _training_memory_and_notes(module, arguments, optimizer, precision, micro_batch)
        seconds = time_layers(module, arguments) if time else {}
    return _build_summary(module, counted, memory, seconds, (*notes, *counted.notes, *problem), depth=depth)


def _count_operations_on_meta(module: nn.Module, arguments: Arguments) -> ForwardOperationCounts:
    try:
        return count_operations(module, arguments)
    except ModelError as error:
        # on the model itself: the copy's message would speak of the device "meta"
        raise model_error_of_forward(module, arguments) or error from None


def _training_memory_and_notes(
    module: nn.Module,
    arguments: Arguments,
    optimizer: "str | OptimizerMaker | None",
    precision: str,
    micro_batch: int | None,
) -> tuple[TrainingMemory | None, list[str]]:
    if optimizer is None or not any(parameter.requires_grad for parameter in module.parameters()):
        return None, []
    reason = ""
    for with_values in (False, True):
        try:
            found = training_memory(
                module, arguments, optimizer, precision, micro_batch=micro_batch, with_values=with_values
            )
            return found, [_WITH_VALUES] if with_values else []
        except Exception as error:  # noqa: BLE001 - the forward ran: what fails is its training, which was not asked for
            reason = error_line(error)
    return None, [f"The memory of training is not known: a training step fails ({reason[:150]})."]


def _build_summary(
    module: nn.Module,
    counted: ForwardOperationCounts,
    memory: TrainingMemory | None,
    seconds: dict[str, float],
    notes: tuple[str, ...],
    *,
    depth: int | None,
) -> Summary:
    parameters, buffers = list(module.parameters()), list(module.buffers())
    return Summary(
        model=type(module).__name__,
        layers=tuple(_make_summary_layers(module, counted, seconds)),
        num_parameters=sum(each.numel() for each in parameters),
        num_trainable=sum(each.numel() for each in parameters if each.requires_grad),
        multiply_adds=counted.multiply_adds,
        parameters_bytes=_total_tensor_bytes(parameters),
        buffers_bytes=_total_tensor_bytes(buffers),
        memory=memory,
        notes=notes,
        depth=depth,
    )


def _make_summary_layers(
    model: nn.Module, counted: ForwardOperationCounts, seconds: dict[str, float]
) -> Iterator[Layer]:
    first_names: dict[nn.Module, str] = {}
    owners: dict[Tensor, str] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        same_as = first_names.setdefault(module, name)
        num_own, shared = _own_and_shared_parameters(name, module, owners)
        calls = counted.calls.get(name, ModuleCallRecord())
        parameters = list(module.parameters())
        tensors = [*parameters, *module.buffers()]
        kernel = getattr(module, "kernel_size", None)
        yield Layer(
            name=name,
            type=type(module).__name__,
            depth=name.count(".") + 1 if name else 0,
            same_as=same_as if same_as != name else None,
            num_calls=calls.num_calls,
            input_shapes=calls.inputs,
            output_shapes=calls.outputs,
            kernel_size=(kernel,) if isinstance(kernel, int) else kernel,
            num_parameters=sum(each.numel() for each in parameters),
            num_own=num_own,
            num_trainable=sum(each.numel() for each in parameters if each.requires_grad),
            shared_parameters=() if same_as != name else tuple(shared),
            multiply_adds=calls.multiply_adds,
            dtype=str(tensors[0].dtype).removeprefix("torch.") if tensors else calls.output_dtype,
            device=str(tensors[0].device) if tensors else "",
            size_bytes=_total_tensor_bytes(tensors),
            seconds=seconds.get(name),
        )


def _own_and_shared_parameters(
    name: str, module: nn.Module, owners: dict[Tensor, str]
) -> tuple[int, list[str]]:
    """Return how many numbers are the module's own, and which of its parameters a module before it has."""
    count, shared = 0, []
    for key, parameter in module.named_parameters(recurse=False):
        full = f"{name}.{key}".lstrip(".")
        owner = owners.setdefault(parameter, full)
        if owner == full:
            count += parameter.numel()
        else:
            shared.append(f"{key} = {owner}")
    return count, shared


def _total_tensor_bytes(tensors: list[Any]) -> int:
    """Return the bytes of tensors, views of one storage counted as they are seen."""
    return sum(each.nbytes for each in tensors_in_structure(tensors))


NUM_ROUNDS = 5


def time_layers(model: nn.Module, arguments: Arguments) -> dict[str, float]:
    """Return the least seconds of each module over five forwards of the model itself, after one to warm up.

    On an accelerator every module waits for the device, so that the whole takes longer than without timing.
    """
    devices = {tensor.device for tensor in [*model.parameters(), *tensors_in_structure(arguments)]}
    best: dict[str, float] = {}
    with preserve_model_state(model):
        run_forward(model, arguments)
        for _ in range(NUM_ROUNDS):
            for name, seconds in _time_one_forward(model, arguments, devices).items():
                best[name] = min(seconds, best.get(name, seconds))
    return best


def _time_one_forward(model: nn.Module, arguments: Arguments, devices: set[torch.device]) -> dict[str, float]:
    taken: dict[str, float] = {}
    begun: list[float] = []

    def synchronized_time() -> float:
        for device in devices:
            synchronize_device(device)
        return time.perf_counter()

    def add_module_time(name: str, *_: Any) -> None:
        taken[name] = taken.get(name, 0.0) + synchronized_time() - begun.pop()

    with ForwardModulePath(model).followed(lambda *_: begun.append(synchronized_time()), add_module_time):
        model(*arguments[0], **arguments[1])
    return taken
