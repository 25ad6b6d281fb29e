# SPDX-License-Identifier: Apache-2.0
"""Targets that were shifted twice."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from truestep.doctor.check import BUG, RISK
from truestep.doctor.runtime.history import ForwardCall, LossCall
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from torch import Tensor

    from truestep.doctor.finding import Place
    from truestep.doctor.runtime.history import OptimizerRecord, WatchHistory

_MOST = 8  # losses and applications of one step that are kept
_STEPS = 3  # that are looked at: a sequence may repeat by chance, and be told from no shift


class _LossTargets(NamedTuple):
    targets: Tensor
    ignored: int


class _GivenSequence(NamedTuple):
    symbols: Tensor
    place: Place
    called: str
    shifted: bool  # whether it was also given each next symbol, as its labels


class LabelsShiftedTwice(Watcher):
    """A model is to predict the symbol after the next one: the labels were shifted by hand, and the model shifts them again.

    Why: it learns to leave out every second symbol. The loss falls as in a right training, and only what it generates shows it.

    Bad:
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Embedding(9, 8), nn.Linear(8, 9)
                self.layer = nn.GRU(8, 8, batch_first=True)

            def forward(self, input_ids, labels):
                logits = self.head(self.layer(self.embed(input_ids))[0])
                return F.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:])

        text, model = torch.randint(9, (4, 12)), Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = model(input_ids=text[:, :-1], labels=text[:, 1:])  # here
        loss.backward()
        optimizer.step()

    Good:
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Embedding(9, 8), nn.Linear(8, 9)
                self.layer = nn.GRU(8, 8, batch_first=True)

            def forward(self, input_ids, labels):
                logits = self.head(self.layer(self.embed(input_ids))[0])
                return F.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:])

        text, model = torch.randint(9, (4, 12)), Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = model(input_ids=text, labels=text)
        loss.backward()
        optimizer.step()

    Fix: labels=input_ids where the model shifts them, as causal models of transformers do.

    Evidence: huggingface/transformers issue 32944, and pull request 44642: "tripped up a lot of users".
    """

    code = "LOSS059"

    def __init__(self) -> None:
        self._left = _STEPS
        self._asked: deque[_LossTargets] = deque(maxlen=_MOST)
        self._given: deque[_GivenSequence] = deque(maxlen=_MOST)

    def on_loss(self, history: WatchHistory, loss: LossCall) -> None:
        """Keep the targets of a cross entropy."""
        if self._left and loss.name in ("cross_entropy", "nll_loss") and not loss.target.is_floating_point():
            self._asked.append(_LossTargets(loss.target.detach(), loss.options.get("ignore_index", -100)))

    def on_forward(self, history: WatchHistory, forward: ForwardCall) -> None:
        """Keep the symbols that a model was given."""
        if not self._left:
            return
        from truestep.doctor.runtime.sequence_leakage import symbols_given_to

        for _, symbols in symbols_given_to(forward)[:1]:
            self._given.append(
                _GivenSequence(
                    symbols, forward.place, forward.called, _is_given_shifted_labels(forward, symbols)
                )
            )

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report targets two places ahead, in a step that asks for no next symbol, too: heads for several places ask for both."""
        if not self._left or not history.is_in_first_steps:
            return
        ahead = {number: given for given in self._given for number in self._target_offsets(given)}
        self._asked.clear()
        self._given.clear()
        self._left = 0 if ahead else self._left - 1
        if 2 in ahead and 1 not in ahead:
            seen = ahead[2]
            who = "by hand, and the model shifts them again" if seen.shifted else "twice"
            text = f"The targets are the symbols two places further on: they were shifted {who}."
            yield Observation(
                seen.place,
                text,
                BUG if seen.shifted else RISK,
                {"model": seen.called, "symbols": tuple(seen.symbols.shape)},
            )

    def _target_offsets(self, given: _GivenSequence) -> Iterator[int]:
        from truestep.doctor.runtime.sequence_leakage import target_shift

        for asked in self._asked:
            found = target_shift(given.symbols, 1, asked.targets, asked.ignored)
            if found is not None:
                yield found


def _is_given_shifted_labels(forward: ForwardCall, symbols: Tensor) -> bool:
    """Tell a model that is given each next symbol beside the symbols: its labels, shifted by hand."""
    from truestep.doctor.runtime.sequence_leakage import integer_batches, target_shift

    return any(target_shift(symbols, 1, each, -100) == 1 for _, each in integer_batches(forward))
