# SPDX-License-Identifier: Apache-2.0
"""Averages in the place of weights, until they are put back."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from truestep.engine.exchange import ValueExchange, copy_values

Here = Callable[[list[Tensor]], list[Tensor]]
"""From tensors to the parts of them that this process has."""


class ShownAverage:
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
