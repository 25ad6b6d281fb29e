# SPDX-License-Identifier: Apache-2.0
"""Which tensors of a model a norm goes on, which can't have it, and what adding or removing one did."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.parametrizations import _SpectralNorm, _WeightNorm
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from truestep.core.errors import OptionError
from truestep.core.result_display import RenderableType, Result, result_table
from truestep.nn.layer_lookup import (
    Layers,
    LayerTensor,
    layer_matches,
    layer_selectors,
    refuse_lazy_layers,
    refuse_non_module,
)

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
# Layers whose output is a product with the weight. An embedding looks up rows and would pay for its whole table.
DEFAULT_KINDS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, *TRANSPOSED)
KINDS: dict[str, type[nn.Module]] = {"weight norm": _WeightNorm, "spectral norm": _SpectralNorm}
OLD_HOOKS: dict[str, type] = {"weight norm": WeightNorm, "spectral norm": SpectralNorm}


class NormedTensor(LayerTensor):
    """A weight that has a norm, or can have one."""

    @property
    def weight(self) -> Tensor:
        """The tensor as it is used."""
        weight: Tensor = getattr(self.module, self.tensor)
        return weight

    def carries(self, norm: str) -> bool:
        """Tell whether the tensor has this norm as a parametrization, alone."""
        return self.is_parametrized and [type(each) for each in self.parametrization] == [KINDS[norm]]

    def old_hook(self, norm: str) -> bool:
        """Tell whether the tensor has this norm in its old form, as a hook before the forward."""
        hooks = self.module._forward_pre_hooks.values()
        return any(isinstance(hook, OLD_HOOKS[norm]) and hook.name == self.tensor for hook in hooks)  # type: ignore[attr-defined]


@dataclass(frozen=True, kw_only=True)
class NormChange(Result):
    """The tensors that were normalised, or are plain again; those that were so before; those left out, and why.

    `replaced` maps each parameter that is no longer part of the model to those that took its place. An optimizer that
    was made before still holds the old ones and would never train the new ones: make the optimizer afterwards.
    """

    norm: str  # "weight norm" or "spectral norm"
    action: str  # "added" or "removed"
    changed: tuple[str, ...]
    already: tuple[str, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[nn.Parameter, tuple[nn.Parameter, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def to_dict(self) -> dict[str, Any]:
        """Return names and reasons as JSON values; of the replaced parameters their number."""
        return {**super().to_dict(), "num_replaced_parameters": len(self.replaced)}

    def __rich__(self) -> RenderableType:
        return result_table(
            f"{self.norm} {self.action}: {len(self.changed)}",
            ("tensor", "what became of it"),
            [
                *((name, self.action) for name in self.changed),
                *((name, "had it already") for name in self.already),
                *((name, f"left: {reason}") for name, reason in self.left.items()),
            ],
        )


def find_normed_tensors(model: nn.Module, layers: Layers | None) -> list[NormedTensor]:
    """Return the weights of the chosen layers, in the model's order; raise an OptionError for a choice of nothing."""
    refuse_non_module(model)
    refuse_lazy_layers(model)
    chosen = DEFAULT_KINDS if layers is None else layer_selectors(layers, model)
    tensors = [
        NormedTensor(name, module, tensor)
        for name, module in model.named_modules()
        if any(layer_matches(selector, name, module) for selector in chosen)
        for tensor in _weight_names(module)
    ]
    if not tensors:
        kinds = ", ".join(sorted({type(module).__name__ for module in model.modules()}))
        raise OptionError(
            f"None of the chosen layers of {type(model).__name__} has a weight of two or more dimensions; it has {kinds}."
        )
    return tensors


def _weight_names(module: nn.Module) -> list[str]:
    if isinstance(module, nn.RNNBase):
        return [name for names in module._all_weights for name in names if name.startswith("weight")]
    weight = getattr(module, "weight", None)
    is_matrix = isinstance(weight, Tensor) and weight.dim() >= 2 and "weight" not in module._buffers
    return ["weight"] if is_matrix else []


def weight_output_axis(module: nn.Module) -> int:
    """Return the dimension of a weight that counts outputs: 1 for transposed convolutions, else 0."""
    return 1 if isinstance(module, TRANSPOSED) else 0
