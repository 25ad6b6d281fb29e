# SPDX-License-Identifier: Apache-2.0
"""A value that is joined with itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from truestep.doctor.check import RISK
from truestep.doctor.watcher import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.runtime.history import WatchHistory
    from truestep.doctor.runtime.origins import WatchedOrigin


class JoinedWithItself(Watcher):
    """The same part of a model's value is taken twice and joined side by side.

    Why: half of what is joined says nothing new, and another part (the other direction's last state, say) is left out.

    Bad:
        class Both(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm, self.head = nn.LSTM(1, 5, batch_first=True, bidirectional=True), nn.Linear(10, 3)

            def forward(self, x):
                _, (states, _) = self.lstm(x.unsqueeze(2))
                return self.head(torch.cat([states[-1], states[-1]], dim=1))  # here

        net = Both()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Good:
        class Both(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm, self.head = nn.LSTM(1, 5, batch_first=True, bidirectional=True), nn.Linear(10, 3)

            def forward(self, x):
                _, (states, _) = self.lstm(x.unsqueeze(2))
                return self.head(torch.cat([states[-2], states[-1]], dim=1))

        net = Both()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for x, y in loader:
            opt.zero_grad()
            F.cross_entropy(net(x), y).backward()
            opt.step()

    Fix: look at the two indices; h[-2] and h[-1] are the last states of the two directions.
    """

    code = "VALUE030"

    def on_operation(
        self, history: WatchHistory, origin: WatchedOrigin, given: list[Tensor], result: Any
    ) -> Observations:
        """Report two parts that were taken by themselves, and lie at one place."""
        if origin.operation not in ("cat", "concat", "concatenate", "hstack") or len(given) < 2:
            return
        first = given[0]
        beside = first.dim() > 1 and len(result) == len(first)  # rows may be repeated on purpose
        parts = {id(each): each for each in given if each.requires_grad and each.numel() > 1}
        places = [(each.data_ptr(), tuple(each.shape), each.stride()) for each in parts.values()]
        if beside and len(set(places)) < len(places):
            text = f"Two of the {len(given)} values that are joined here are the same part of one value."
            yield Observation(origin.place, text, RISK, {"joined": len(given), "shape": tuple(first.shape)})
