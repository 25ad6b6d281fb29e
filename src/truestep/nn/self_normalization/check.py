# SPDX-License-Identifier: Apache-2.0
"""Measuring whether a model normalises itself."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from truestep.core.errors import OptionError
from truestep.core.results import Result
from truestep.nn.activations import ELEMENTWISE
from truestep.nn.derivatives.undisturbed import eager
from truestep.nn.keeping import only_looking
from truestep.nn.layers import check_model

if TYPE_CHECKING:
    from rich.console import RenderableType

# The domain that SELU maps into itself, Theorem 1 of Klambauer et al. 2017.
MEAN_BOUND = 0.1
VARIANCE_BOUNDS = (0.8, 1.5)


@dataclass(frozen=True, kw_only=True)
class LayerStatistics:
    """Mean and standard deviation of all numbers that one activation gave; `holds` if they lie in SELU's domain."""

    name: str
    kind: str
    mean: float
    std: float

    @property
    def holds(self) -> bool:
        """Whether the mean lies within 0.1 of 0 and 0.8 ≤ variance ≤ 1.5."""
        return abs(self.mean) <= MEAN_BOUND and VARIANCE_BOUNDS[0] <= self.std**2 <= VARIANCE_BOUNDS[1]


@dataclass(frozen=True, kw_only=True)
class SelfNormalizingCheck(Result):
    """The inputs and every activation, in the order of the forward."""

    layers: tuple[LayerStatistics, ...]

    @property
    def holds(self) -> bool:
        """Whether inputs and all activations lie in SELU's domain."""
        return all(layer.holds for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """Return the layers as JSON values, each with `holds`."""
        layers = [
            {"name": each.name, "kind": each.kind, "mean": each.mean, "std": each.std, "holds": each.holds}
            for each in self.layers
        ]
        return {"schema_version": self.schema_version, "holds": self.holds, "layers": layers}

    def __rich__(self) -> "RenderableType":
        from rich.table import Table

        table = Table(
            title="self-normalising" if self.holds else "not self-normalising", title_justify="left"
        )
        for column in ("layer", "kind", "mean", "std", ""):
            table.add_column(column)
        for each in self.layers:
            table.add_row(
                each.name, each.kind, f"{each.mean:.3f}", f"{each.std:.3f}", "" if each.holds else "outside"
            )
        return table


def check_self_normalizing(model: nn.Module, inputs: Tensor | tuple[Any, ...]) -> SelfNormalizingCheck:
    """Run a model on a batch and measure mean and standard deviation after each activation.

    They hold where the mean lies within 0.1 of 0 and 0.8 ≤ variance ≤ 1.5, which SELU maps into itself (Klambauer et al.
    2017, Theorem 1); narrow layers and small batches stray further by chance. The model runs in the mode it is in, so with
    dropout in training mode; its buffers and torch's random state are put back.

    Args:
        model: not changed.
        inputs: a batch, or the tuple of the forward's arguments.

    Raises:
        OptionError: the forward calls no activation module, so there is nothing to measure.
    """
    check_model(model)
    if any(parameter.is_meta for parameter in model.parameters()):
        raise OptionError(
            "The model is on the device meta, where nothing is computed: model.to_empty(device='cpu')."
        )
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    layers = [
        _measured("inputs", "", each)
        for each in arguments
        if isinstance(each, Tensor) and each.is_floating_point()
    ]
    activations = _activations(model, arguments)
    if not activations:
        raise OptionError(
            f"The forward of {type(model).__name__} calls no activation module, so there is nothing to measure. Use nn.SELU() "
            "as a layer instead of F.selu."
        )
    return SelfNormalizingCheck(layers=(*layers, *activations))


def _activations(model: nn.Module, arguments: tuple[Any, ...]) -> list[LayerStatistics]:
    """Run the model, and measure what each activation gives."""
    layers: list[LayerStatistics] = []
    handles = [
        module.register_forward_hook(
            lambda module, _, output, name=name: layers.append(_measured(name, type(module).__name__, output))
        )
        for name, module in model.named_modules()
        if isinstance(module, ELEMENTWISE)
    ]
    try:
        with only_looking(model), eager():
            model(*arguments)
    finally:
        for handle in handles:
            handle.remove()
    return layers


def _measured(name: str, kind: str, values: Tensor) -> LayerStatistics:
    values = values.detach().double()
    if not values.numel():
        raise OptionError(f"The batch is empty at {name!r}, so there is nothing to measure.")
    return LayerStatistics(
        name=name, kind=kind, mean=float(values.mean()), std=float(values.std(correction=0))
    )
