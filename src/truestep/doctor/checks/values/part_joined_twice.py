# SPDX-License-Identifier: Apache-2.0
"""One part of a value that is joined to itself."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from truestep.doctor.check import RISK
from truestep.doctor.finding import Place
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import WatchHistory
    from truestep.doctor.runtime.origins import WatchedOrigin

STEPS = 3  # so many show the same


class PartJoinedTwice(Watcher):
    """The same part of a value is taken twice, and the two are joined as features: half of the result repeats the other.

    Why: two parts were meant, such as the last states of both directions: what the other one holds is lost.

    Bad:
        both = nn.GRU(4, 6, bidirectional=True, batch_first=True)
        for x, y in loader:
            _, state = both(x[:, None])
            joined = torch.cat([state[-1], state[-1]], dim=1)  # here
            joined.mean().backward()

    Good:
        both = nn.GRU(4, 6, bidirectional=True, batch_first=True)
        for x, y in loader:
            _, state = both(x[:, None])
            joined = torch.cat([state[-2], state[-1]], dim=1)
            joined.mean().backward()

    Fix: take the other part, as state[-2] beside state[-1]; where a repetition is meant, repeat() says so.
    """

    code = "VALUE027"

    def __init__(self) -> None:
        self.seen: dict[Place, int] = {}

    def on_operation(
        self, history: WatchHistory, origin: WatchedOrigin, given: list[Tensor], result: Any
    ) -> Observations:
        """Report two views of the same numbers, taken one by one, that are joined past the first axis."""
        if origin.operation not in ("cat", "concat", "concatenate") or not result.requires_grad:
            return
        if result.dim() < 2 or len(result) != len(given[0]):  # examples are joined, not features
            return
        for one, other in combinations(given[:8], 2):
            if (
                one is not other
                and one._base is not None
                and one._base is other._base
                and _are_same(one, other)
            ):
                self.seen[origin.place] = self.seen.get(origin.place, 0) + 1
                if self.seen[origin.place] == STEPS:
                    text = f"Two of the {len(given)} parts that are joined are the same {tuple(one.shape)} numbers."
                    yield Observation(origin.place, text, RISK, {"shape": list(one.shape)})
                return


def _are_same(one: Tensor, other: Tensor) -> bool:
    """Tell whether two views show the same numbers of one memory."""
    first, second = ((each.data_ptr(), each.shape, each.stride()) for each in (one, other))
    return first == second and one.numel() > 0
