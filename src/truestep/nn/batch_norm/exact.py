# SPDX-License-Identifier: Apache-2.0
"""Running statistics of batch normalisation that are those of a data set."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from truestep.core.device_specific import to_float64
from truestep.core.errors import OptionError, check_choice
from truestep.core.module_inspection import restoring_module
from truestep.core.result_display import RenderableType, Result, result_table
from truestep.core.text_formatting import a_type, plural
from truestep.nn.layer_lookup import refuse_lazy_layers, refuse_non_module
from truestep.nn.streaming_moments import RunningMoments, measure_moments, merge_moments

Forward = Callable[[Any], object]
Passes = Callable[[], Iterator[None]]
BatchNorm = nn.modules.batchnorm._BatchNorm
Statistics = tuple[Tensor, Tensor, int]
Moments = dict[BatchNorm, RunningMoments]


@dataclass(frozen=True)
class BatchNormChange:
    """One layer: values per channel; how far its old statistics were off in its worst channel.

    `mean_shift` is in standard deviations of the exact statistics, `variance_ratio` is the old variance over the exact one.
    """

    name: str
    num_values: int
    mean_shift: float
    variance_ratio: float


@dataclass(frozen=True, kw_only=True)
class ExactBatchNorm(Result):
    """The layers whose statistics were set, in the order of the forward; those that it never called, left as they were."""

    layers: tuple[BatchNormChange, ...]
    left: tuple[str, ...]

    def __rich__(self) -> RenderableType:
        rows = [
            (
                each.name or "(the model)",
                f"{each.num_values:,}",
                f"{each.mean_shift:.3g}",
                f"{each.variance_ratio:.4g}",
            )
            for each in self.layers
        ]
        return result_table(
            f"layers with exact statistics: {len(self.layers)}",
            ("layer", "values per channel", "mean was off by (std)", "old variance / exact"),
            [*rows, *((name, "never called") for name in self.left)],
        )


def exact_batch_norm(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    forward: Forward | None = None,
    method: str = "layer_by_layer",
    unbiased: bool = True,
) -> ExactBatchNorm:
    """Set the running statistics of all batch norms to the mean and variance of their inputs over a data set.

    What a later layer sees depends on how earlier ones normalise, so there are two definitions.

    - "layer_by_layer": the layers get their statistics one after another, in the order of the forward, everything in
      evaluation mode. Each layer's are then exactly those of its inputs in evaluation, whatever the batches; it takes one
      pass over the data for each layer, and one to find the order.
    - "one_pass": each layer normalises by the batch's own statistics, as in training, while its inputs are measured. One pass
      and the usual approximation ("precise batch norm", Wu and Johnson 2021); from the second layer on it depends on how the
      data is cut into batches. Everything else, dropout say, is in evaluation mode here too.

    Sums are in float64 and every sample counts once, whatever the sizes of the batches. Modes, gradients, other buffers,
    `num_batches_tracked` and torch's random state are left as they were, after an error the statistics too.

    Args:
        model: changed in its running statistics alone.
        batches: batches that can be gone through again, a list or a DataLoader; of one process, all of the data.
        forward: runs the model on a batch: `lambda batch: model(batch["image"])`. By default a tensor is the model's input,
            and so is the first of a tuple or list; both are brought to the model's device.
        method: "layer_by_layer" or "one_pass".
        unbiased: divide by count − 1, as torch does for running variances; False for the variance of the data itself.

    Raises:
        OptionError: no batch norm with running statistics; no batches, or an iterator that is used up by one pass; a
            layer that is used several times in a forward ("layer_by_layer"); NaN or infinite statistics.
    """
    refuse_non_module(model)
    refuse_lazy_layers(model)
    check_choice("ts.nn.exact_batch_norm", "method", method, ("layer_by_layer", "one_pass"))
    in_order = method == "layer_by_layer"
    _check_data(model, batches, forward, in_order=in_order)
    layers = {
        module: name
        for name, module in model.named_modules()
        if isinstance(module, BatchNorm) and module.running_mean is not None
    }
    if not layers:
        raise OptionError(f"{type(model).__name__} has no batch norm with running statistics to set.")
    passes = partial(_run_batches_one_by_one, forward or _default_forward(model), batches)
    with restoring_module(model):
        model.eval()
        moments = (
            _measure_layer_by_layer(layers, passes, unbiased)
            if in_order
            else _measure_in_one_pass(layers, passes)
        )
        exact = {
            layer: _batch_norm_statistics(layers[layer], held, unbiased) for layer, held in moments.items()
        }
    changes = tuple(
        _make_batch_norm_change(layers[layer], layer, *statistics) for layer, statistics in exact.items()
    )
    for layer, statistics in exact.items():
        _write_running_statistics(layer, statistics)
    return ExactBatchNorm(layers=changes, left=tuple(layers[layer] for layer in layers if layer not in exact))


def _check_data(model: nn.Module, batches: object, forward: object, *, in_order: bool) -> None:
    if isinstance(batches, Tensor) or not isinstance(batches, Iterable):
        raise OptionError(
            f"The batches are {a_type(batches)}; give several in a list or a DataLoader: [inputs], or inputs.split(256)."
        )
    if in_order and isinstance(batches, Iterator):
        raise OptionError(
            "method='layer_by_layer' goes over the data once for each layer, and an iterator can be used once: give the list or "
            "the DataLoader itself, or method='one_pass'."
        )
    if forward is not None and not callable(forward):
        raise OptionError(f'forward={forward!r} is no function: write lambda batch: model(batch["image"]).')
    if any(tensor.is_meta for tensor in model.buffers()):
        raise OptionError("The model is on the device meta and computes nothing; load its weights.")


def _default_forward(model: nn.Module) -> Forward:
    device = next((tensor.device for tensor in [*model.parameters(), *model.buffers()]), torch.device("cpu"))

    def forward(batch: Any) -> object:
        inputs = batch[0] if isinstance(batch, tuple | list) and batch else batch
        if not isinstance(inputs, Tensor):
            raise OptionError(
                f"A batch is {a_type(batch)} and its inputs can't be told; say how the model is run: "
                'forward=lambda batch: model(batch["image"]).'
            )
        return model(inputs.to(device))

    return forward


def _run_batches_one_by_one(forward: Forward, batches: Iterable[Any]) -> Iterator[None]:
    """Run all batches, and stop after each."""
    batch = nothing = object()
    for batch in batches:
        forward(batch)
        yield
    if batch is nothing:
        raise OptionError("There are no batches, so there are no statistics to take.")


def _measure_layer_inputs(layers: Iterable[BatchNorm], passes: Passes) -> Moments:
    """Return the moments of what one pass gives to these layers, in the order in which they are first called."""
    moments: Moments = {}

    @torch.no_grad()
    def record_layer_input(layer: BatchNorm, inputs: tuple[Tensor, ...]) -> None:
        rows = to_float64(inputs[0]).transpose(0, 1).flatten(1).t()
        found = measure_moments(rows, rows.new_ones(len(rows), 1))
        moments[layer] = merge_moments(moments[layer], found) if layer in moments else found

    with ExitStack() as hooks:
        for layer in layers:
            hooks.callback(layer.register_forward_pre_hook(record_layer_input).remove)
        # runs the passes and keeps nothing of them
        deque(passes(), maxlen=0)
    return moments


def _measure_in_one_pass(layers: dict[BatchNorm, str], passes: Passes) -> Moments:
    for layer in layers:
        layer.train()
    try:
        return _measure_layer_inputs(layers, passes)
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise OptionError(
            "A batch has one value per channel, and its own statistics would make it 0. Use larger batches, or "
            "method='layer_by_layer', which needs no statistics of batches."
        ) from error


def _measure_layer_by_layer(layers: dict[BatchNorm, str], passes: Passes, unbiased: bool) -> Moments:
    found: Moments = {}
    for layer in _forward_order_of_layers(layers, passes):
        found |= _measure_layer_inputs([layer], passes)
        _write_running_statistics(layer, _batch_norm_statistics(layers[layer], found[layer], unbiased))
    return found


def _forward_order_of_layers(layers: dict[BatchNorm, str], passes: Passes) -> list[BatchNorm]:
    """Return the layers in an order that every forward follows; one that is called twice in a forward has none."""
    calls: list[BatchNorm] = []
    sorter: TopologicalSorter[BatchNorm] = TopologicalSorter()
    with ExitStack() as hooks:
        for layer in layers:
            hooks.callback(layer.register_forward_pre_hook(lambda layer, _: calls.append(layer)).remove)
        for _ in passes():
            for layer in calls:
                sorter.add(layer)
            for before, after in pairwise(calls):
                sorter.add(after, before)
            calls.clear()
    try:
        return list(sorter.static_order())
    except CycleError as error:
        names = ", ".join(dict.fromkeys(repr(layers[layer]) for layer in error.args[1]))
        raise OptionError(
            f"{names} is used several times in a forward, so its inputs depend on its own statistics and none fit exactly. Use "
            "method='one_pass'."
        ) from error


def _batch_norm_statistics(name: str, moments: RunningMoments, unbiased: bool) -> Statistics:
    """Return mean, variance and number of values per channel of a layer's inputs."""
    count = int(moments.weight.max()) if moments.weight.numel() else 0
    if count < (2 if unbiased else 1):
        raise OptionError(
            f"{name!r} got {plural(count, 'value')} per channel; an unbiased variance needs two."
        )
    variance = moments.squares / (count - unbiased)
    if not (moments.mean.isfinite().all() and variance.isfinite().all()):
        raise OptionError(
            f"The inputs of {name!r} hold NaN or infinite numbers, which its statistics would keep forever. Nothing was changed."
        )
    return moments.mean, variance, count


@torch.no_grad()
def _write_running_statistics(layer: BatchNorm, statistics: Statistics) -> None:
    layer.get_buffer("running_mean").copy_(statistics[0])
    layer.get_buffer("running_var").copy_(statistics[1])


def _make_batch_norm_change(
    name: str, layer: BatchNorm, mean: Tensor, variance: Tensor, num_values: int
) -> BatchNormChange:
    spread = variance + layer.eps
    shift = (mean - to_float64(layer.get_buffer("running_mean")).to(mean)).abs() / spread.sqrt()
    ratio = to_float64(layer.get_buffer("running_var")).to(mean) / spread
    return BatchNormChange(name, num_values, float(shift.max()), float(ratio.max()))
