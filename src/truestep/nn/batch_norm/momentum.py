# SPDX-License-Identifier: Apache-2.0
"""The momentum of running statistics when a batch is computed in several micro-batches."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from torch import nn

from truestep.core.errors import OptionError, check_number
from truestep.core.result_display import RenderableType, Result, result_table
from truestep.nn.layer_lookup import refuse_non_module


@dataclass(frozen=True, kw_only=True)
class MomentumChange(Result):
    """Momenta before and after, by layer; `restore()`, or the end of a `with` block, puts the old ones back."""

    num_micro_batches: int
    old: Mapping[str, float]
    new: Mapping[str, float]
    cumulative: tuple[str, ...] = ()  # momentum=None: an average over all forwards has no pace to keep
    _model: nn.Module = field(repr=False, compare=False)

    def restore(self) -> None:
        """Put the old momenta back."""
        for name, momentum in self.old.items():
            self._model.get_submodule(name).momentum = momentum  # type: ignore[assignment]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()

    def __rich__(self) -> RenderableType:
        changed = [(name, f"{old:.6g}", f"{self.new[name]:.6g}") for name, old in self.old.items()]
        kept = [(name, "None", "None: an average over all forwards") for name in self.cumulative]
        rows = [(name or "(the model)", *momenta) for name, *momenta in changed + kept]
        title = f"momentum for {self.num_micro_batches} micro-batches"
        return result_table(title, ("layer", "was", "is"), rows)


def batch_norm_momentum(model: nn.Module, num_micro_batches: int) -> MomentumChange:
    """Slow running statistics down so that k micro-batches forget as much as one batch did, in place.

    A batch of k micro-batches moves the statistics k times. With momentum 1 − (1 − m)^(1/k) the old value keeps the weight
    1 − m after all of them. Within the batch a later micro-batch still counts a little more than an earlier one, and
    variances between micro-batches are in none of them: for the statistics of whole data use `exact_batch_norm`.

        ts.nn.batch_norm_momentum(model, 4)            # from now on
        with ts.nn.batch_norm_momentum(model, 4): ...  # for a while

    The momenta in force are the ones that are changed, so a second call slows down again; `restore()` first. Layers
    with momentum=None average over all forwards, which is the same for parts of equal size, and stay.

    Args:
        model: changed in place; instance norms with running statistics too.
        num_micro_batches: forwards in training mode for each batch, at least 1.

    Raises:
        OptionError: no whole number of at least 1; no layer with running statistics; a momentum outside 0 to 1.
    """
    refuse_non_module(model)
    check_number("ts.nn.batch_norm_momentum", "num_micro_batches", num_micro_batches, example=4, least=1)
    layers = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats
    }
    if not layers:
        raise OptionError(f"{type(model).__name__} has no layer with running statistics, so no momentum.")
    old = {name: module.momentum for name, module in layers.items() if module.momentum is not None}
    if wrong := {name: momentum for name, momentum in old.items() if not 0 <= momentum <= 1}:
        raise OptionError(
            f"Momenta outside 0 to 1 decay nothing: {wrong}. torch's momentum is the weight of the new batch, 0.1 by default."
        )
    new = {name: 1 - (1 - momentum) ** (1 / num_micro_batches) for name, momentum in old.items()}
    for name, momentum in new.items():
        layers[name].momentum = momentum
    rest = tuple(name for name in layers if name not in old)
    return MomentumChange(
        num_micro_batches=num_micro_batches, old=old, new=new, cumulative=rest, _model=model
    )
