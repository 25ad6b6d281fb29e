# SPDX-License-Identifier: Apache-2.0
"""Making a model self-normalising."""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from truestep.core.errors import OptionError
from truestep.core.results import Result
from truestep.nn.activations import ELEMENTWISE
from truestep.nn.initialization.initialize import initialize
from truestep.nn.layers import NORMS, check_model, refuse_lazy
from truestep.nn.swapping.functional import functional_uses
from truestep.nn.swapping.swap import swap_activation

if TYPE_CHECKING:
    from rich.console import RenderableType

_RECTIFIERS = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish)
_CHANNEL_DROPOUTS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
_DROPOUTS = (nn.Dropout, *_CHANNEL_DROPOUTS)
_PRODUCTS = (nn.Linear, nn.modules.conv._ConvNd)


@dataclass(frozen=True, kw_only=True)
class SelfNormalizing(Result):
    """What became SELU, what became alpha dropout, which weights were initialised, and what stands in the way."""

    activations: tuple[str, ...]
    dropouts: tuple[str, ...]
    weights: tuple[str, ...]
    concerns: tuple[str, ...]

    def __rich__(self) -> "RenderableType":
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        table.add_row("now SELU", ", ".join(self.activations) or "none")
        table.add_row("now alpha dropout", ", ".join(self.dropouts) or "none")
        table.add_row("LeCun weights", ", ".join(self.weights) or "none")
        for concern in self.concerns:
            table.add_row("but", concern)
        return table


def self_normalizing(model: nn.Module, *, generator: torch.Generator | None = None) -> SelfNormalizing:
    """Make a model self-normalising (Klambauer et al. 2017), in place: the whole set, since each part alone fails.

    Rectifiers (ReLU, LeakyReLU, ELU, GELU, SiLU and their like) become SELU, dropout becomes alpha dropout of the same
    rate (the paper uses 0.05 or 0.1), weights of linear and convolutional layers get variance 1/fan-in ("lecun"), biases
    0. Inputs must be standardised. What stands in the way (norm layers, other activations, activations or dropout as
    functions) is warned about and listed. Measure the effect with `check_self_normalizing`.

    Args:
        model: changed in place.
        generator: where the weights come from; torch's own stream by default.
    """
    check_model(model)
    refuse_lazy(model)
    concerns = _concerns(model)
    activations = _swap(model, _RECTIFIERS, nn.SELU)
    dropouts = _swap(model, nn.Dropout, _alpha) + _swap(model, _CHANNEL_DROPOUTS, _feature_alpha)
    kinds = [kind for kind in _PRODUCTS if any(isinstance(module, kind) for module in model.modules())]
    weights: tuple[str, ...] = ()
    if kinds:
        done = initialize(model, dict.fromkeys(kinds, "lecun"), generator=generator)
        weights = tuple(each.name for each in done.tensors if each.rule == "lecun")
        frozen = [name for name, reason in done.left.items() if reason == "frozen"]
        concerns += (f"frozen, and left as they were: {', '.join(frozen)}",) if frozen else ()
    if not (kinds or activations or dropouts):
        raise OptionError(
            f"{type(model).__name__} has no linear or convolutional layer, no activation and no dropout to change."
        )
    if concerns:
        warnings.warn(f"Not self-normalising yet: {'; '.join(concerns)}.", stacklevel=2)
    return SelfNormalizing(activations=activations, dropouts=dropouts, weights=weights, concerns=concerns)


def _alpha(old: nn.Dropout) -> nn.Module:
    return nn.AlphaDropout(old.p)


def _feature_alpha(old: nn.Dropout1d) -> nn.Module:
    return nn.FeatureAlphaDropout(old.p)


def _swap(
    model: nn.Module, kinds: type[nn.Module] | tuple[type[nn.Module], ...], new: object
) -> tuple[str, ...]:
    if not any(isinstance(module, kinds) for module in model.modules()):
        return ()
    return swap_activation(model, kinds, new).swapped  # type: ignore[arg-type]


def _concerns(model: nn.Module) -> tuple[str, ...]:
    named = list(model.named_modules())
    norms = [name for name, module in named if isinstance(module, NORMS)]
    others = [
        name
        for name, module in named
        if isinstance(module, ELEMENTWISE) and not isinstance(module, (*_RECTIFIERS, nn.SELU))
    ]
    functional, unread = functional_uses(model, (*_RECTIFIERS, *_DROPOUTS))
    concerns = {
        "norm layers, which do the same work and make it depend on the batch or the example": norms,
        "activations that are not known to normalise": others,
        "activations or dropout as functions, which only you can replace (F.selu, nn.AlphaDropout)": functional,
        "such functions in classes whose source is not to be found": unread,
    }
    return tuple(f"{what}: {', '.join(where)}" for what, where in concerns.items() if where)
