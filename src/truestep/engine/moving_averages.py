# SPDX-License-Identifier: Apache-2.0
"""An exponential moving average of a learner's weights."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from truestep.core.errors import OptionError, check_number
from truestep.core.missing_attribute_hints import HelpfulAttributes
from truestep.core.text_formatting import a_type
from truestep.engine.processes.shards import is_divided_over_ranks, local_part
from truestep.engine.tensor_swap import ValueExchange, copy_values

LEAST_DECAY = 0.1
"""The least decay other than 0: below it two numbers are most likely exchanged, the share that stays and that which is new."""


@dataclass(frozen=True)
class EMA(HelpfulAttributes):
    """Keep an exponential moving average of the weights, for evaluation and export.

    `EMA(decay=d, warmup=False, starts_at=1)` is, bit for bit, torch's `AveragedModel(model,
    multi_avg_fn=get_ema_multi_avg_fn(d))` updated after each step; `buffers` is its `use_buffers`.

    Attributes:
        decay: how much of the average stays at an update; 0.999 averages over about a thousand updates.
        warmup: let the decay grow as (1 + n) / (10 + n) up to `decay`, n updates after the start, so that the first random
            weights are soon forgotten (Martín Abadi et al., TensorFlow's `ExponentialMovingAverage`).
        starts_at: the update whose weights the average starts as; 0 starts with the weights before the first.
        buffers: average floating-point buffers too (running statistics); else the module's own are used.
    """

    _called: ClassVar[str] = "ts.EMA, which says how weights are averaged,"
    _variable: ClassVar[str] = "ema"

    decay: float = 0.999
    _: KW_ONLY
    warmup: bool = True
    starts_at: int = 0
    buffers: bool = False

    def __post_init__(self) -> None:
        check_number("ts.EMA", "decay", self.decay, example=0.999)
        check_number("ts.EMA", "starts_at", self.starts_at, example=0)
        if not 0 <= self.decay < 1:
            raise OptionError(
                f"EMA(decay={self.decay}): the decay lies between 0 (no memory) and 1 (never changes); 0.999 is usual."
            )
        if 0 < self.decay < LEAST_DECAY:
            raise OptionError(
                f"EMA(decay={self.decay}): the decay is what stays of the average at an update, and so little averages nothing. "
                f"Where it is the share of the newest weights (tau, momentum) write EMA(decay={1 - self.decay:.6g}); without an "
                "average leave ema= out."
            )

    def decay_at(self, updates: int) -> float:
        """Return the decay of update number `updates` (counted from one)."""
        averaged = updates - self.starts_at
        if averaged <= 0:
            return 0.0
        return min(self.decay, (1 + averaged) / (10 + averaged)) if self.warmup else self.decay


class LearnerAverage:
    """The moving average of a learner's weights and, where that was asked for, of its buffers."""

    def __init__(
        self, names: Sequence[str], masters: Sequence[nn.Parameter], module: nn.Module, options: EMA
    ) -> None:
        self.options = options
        kept = [
            (name, weight, master)
            for name, weight, master in zip(names, module.parameters(), masters, strict=True)
            # integers (quantised weights) have no mean of their type
            if weight.is_floating_point() or weight.is_complex()
        ]
        self._names = [name for name, _, _ in kept]
        self._parameters: list[Tensor] = [weight for _, weight, _ in kept]
        # Where the optimizer moves float32 masters, these are averaged, not what they are rounded to.
        self._sources: list[Tensor] = [master for _, _, master in kept]
        self._places = _floating_buffers(module) if options.buffers else {}
        # Averages of half-precision tensors are kept in float32: 1 - decay is lost in 8 or 11 bits.
        self.tensors = [
            each.detach().to(torch.promote_types(each.dtype, torch.float32), copy=True)
            for each in self._parameters_and_buffers(self._sources)
        ]
        self._are_divided = any(map(is_divided_over_ranks, self._sources))
        # Buffers may be replaced by others of another type; the optimizer's parameters stay what they are.
        self._has_one_type = not self._places and all(
            source.dtype == mean.dtype for source, mean in zip(self._sources, self.tensors, strict=True)
        )
        self._shown: SwappedAverage | None = None

    def _parameters_and_buffers(self, parameters: list[Tensor]) -> list[Tensor]:
        """Return `parameters` and the buffers as they are at this moment: a forward may have assigned new ones."""
        if not self._places:
            return parameters
        return parameters + [_get_buffer(place) for place in self._places.values()]

    def update(self, updates: int, applied: Tensor | None = None) -> None:
        """Move towards the weights after update number `updates`; `applied` (0 or 1, on the device) can hold it back.

        To be called where no gradients are recorded.
        """
        weight = 1 - self.options.decay_at(updates)
        current = self._parameters_and_buffers(self._sources)
        if not self._has_one_type:
            current = [source.to(mean.dtype) for source, mean in zip(current, self.tensors, strict=True)]
        means, current = self._here(self.tensors), self._here(current)
        if applied is None:
            torch._foreach_lerp_(means, current, weight)
            return
        # A number on the device, so that nobody waits to know whether the step was made; lerp would read it on the host.
        steps = torch._foreach_sub(current, means)
        # a flag in single precision would round the weight
        exact = torch.promote_types(means[0].dtype, torch.float32)
        torch._foreach_mul_(steps, applied.to(exact) * weight)
        torch._foreach_add_(means, steps)

    def _here(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return the parts that this process has, where they are divided."""
        return [local_part(tensor) for tensor in tensors] if self._are_divided else tensors

    def show(self) -> None:
        """Put the averages in the place of the weights."""
        # A forward may fill buffers, which are no averages then: only parameters are exchanged.
        places, num_weights = self._parameters_and_buffers(self._parameters), len(self._parameters)
        self._shown = SwappedAverage(places, self.tensors, self._here, num_weights)
        self._shown.begin()
        torch.clear_autocast_cache()  # what it has cast of the weights, it would go on with

    def hide(self) -> None:
        """Put the weights back, also after an interrupted `show` or `hide`."""
        if self._shown is not None:
            self._shown.back()
            self._shown = None
            torch.clear_autocast_cache()

    @property
    def was_written(self) -> bool:
        """Whether somebody wrote to the weights while the averages were in their place."""
        return self._shown is not None and self._shown.was_written

    def original_weights_by_name(self, module: nn.Module) -> dict[str, Tensor]:
        """Return what the weights (and averaged buffers) are by name while averages stand in their place."""
        if self._shown is None:
            return {}
        behind = self._shown.behind
        named = [
            *module.named_parameters(remove_duplicate=False),
            *module.named_buffers(remove_duplicate=False),
        ]
        return {name: behind[id(tensor)] for name, tensor in named if id(tensor) in behind}

    def state_dict(self) -> dict[str, Tensor]:
        """Return the averages by the names of parameters and buffers."""
        tensors = self.tensors if self._shown is None else self._shown.averages
        return dict(zip([*self._names, *self._places], tensors, strict=True))

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over the averages."""
        with torch.no_grad():
            for name, tensor in self.state_dict().items():
                tensor.copy_(state[name])


def _floating_buffers(module: nn.Module) -> dict[str, tuple[nn.Module, str]]:
    """Return where the buffers are that have an average; counts have none."""
    return {
        f"{prefix}.{name}" if prefix else name: (part, name)
        for prefix, part in module.named_modules()
        for name, buffer in part._buffers.items()
        if buffer is not None and (buffer.is_floating_point() or buffer.is_complex())
    }


def _get_buffer(place: tuple[nn.Module, str]) -> Tensor:
    part, name = place
    buffer = part._buffers[name]
    if buffer is None:
        raise OptionError(
            f"The buffer {name!r} of {a_type(part)} became None, so ts.EMA(buffers=True) has nothing to average. Use "
            "buffers=False, or keep a tensor there."
        )
    return buffer


Here = Callable[[list[Tensor]], list[Tensor]]
"""From tensors to the parts of them that this process has."""


class SwappedAverage:
    """Exchanges values of weights and averages where both have one type; else the weights' are copied.

    Values and not tensors: the optimizer, hooks and compiled graphs hold these very tensors. Only the first `num_weights` are
    exchanged; of what follows, buffers that a forward may fill, the average stays what it is.
    """

    def __init__(
        self, places: Sequence[Tensor], means: Sequence[Tensor], here: Here, num_weights: int
    ) -> None:
        pairs = list(zip(places, means, strict=True))
        are_exchanged = [
            number < num_weights and place.dtype == mean.dtype for number, (place, mean) in enumerate(pairs)
        ]
        self.averages = [
            place.detach() if is_so else mean
            for (place, mean), is_so in zip(pairs, are_exchanged, strict=True)
        ]
        """The averages, wherever they are meanwhile."""
        exchanged, self._copied = (
            [pair for pair, is_so in zip(pairs, are_exchanged, strict=True) if is_so is wanted]
            for wanted in (True, False)
        )
        self.behind = {id(place): mean for place, mean in exchanged}
        """The weights by the tensors in which the averages are."""
        self._here = here
        self._written = here([place for place, _ in exchanged])
        self._exchange = ValueExchange(self._written, here([mean for _, mean in exchanged]))
        self._kept: list[Tensor] | None = None
        self._versions: list[int] | None = None

    @torch.no_grad()
    def begin(self) -> None:
        """Put the averages in the place of the weights."""
        places, means = ([pair[side] for pair in self._copied] for side in (0, 1))
        self._kept = [place.detach().clone() for place in places]
        self.behind |= {id(place): copy for place, copy in zip(places, self._kept, strict=True)}
        copy_values(self._here(places), self._here(means))
        self._exchange.exchange()
        self._versions = [weight._version for weight in self._written]

    @property
    def was_written(self) -> bool:
        """Whether somebody wrote to the weights while the averages were in their place."""
        return self._versions is not None and self._versions != [each._version for each in self._written]

    @torch.no_grad()
    def back(self) -> None:
        """Put the weights back, of what was begun; called again it goes on where it was interrupted."""
        self._versions = None
        self._exchange.back()
        if self._kept is not None:
            places = self._here([place for place, _ in self._copied])
            copy_values(places, self._here(self._kept))
