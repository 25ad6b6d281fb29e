# SPDX-License-Identifier: Apache-2.0
"""A mixture in which a source is a stream: each source is read in pieces of its own, and batches are made of what is drawn."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch

from truestep.core.errors import DataError
from truestep.engine.automatic_choice import Choice
from truestep.engine.batches import BatchOrigin, batch_rows
from truestep.engine.data.batch_source import BatchSource, BatchWithOrigin
from truestep.engine.data.empty_batch import describe_batch_types
from truestep.engine.data.mixture import (
    MixtureDraws,
    describe_draws,
    endless_mixture_reason,
    refuse_endless_evaluation,
)
from truestep.engine.data.options import DataOptions
from truestep.engine.data.order_construction import describe_data_options
from truestep.engine.data.permutation import Indices
from truestep.engine.data.randomness import SampleRandomness
from truestep.engine.data.transfer import batches_to_device
from truestep.engine.processes.batch_row_shares import RankShare

PIECE = 32  # samples that are read of a source together


class MixtureSourceReader:
    """Reads one source of a mixture, sample by sample, pass after pass."""

    def __init__(self, name: str, source: BatchSource, *, begins_again: bool) -> None:
        self.name, self.source, self._begins_again = name, source, begins_again
        self.read = ""
        """A digest of what was read of a stream."""
        self._place: dict[str, Any] = {}

    def begin(self, epoch: int, saved: Mapping[str, Any]) -> None:
        """Begin a pass of the mixture, or go on where `saved` was taken."""
        self._epoch, self._pass = epoch, saved.get("pass", 0)
        self._piece, self._used = saved.get("piece", 0), saved.get("used", 0)
        self._before: dict[str, Any] = saved.get("source", {})
        self._samples: list[Any] = []
        self._open_pieces(used=self._used)

    def _open_pieces(self, used: int = 0) -> None:
        self._pieces = self.source.made(self._epoch + self._pass, self._piece)
        if used and self._read_next_piece():
            self._used = used

    def _read_next_piece(self) -> bool:
        """Read the next piece; False where the pass through this source is over."""
        before = self.source.state_dict()
        made = next(self._pieces, None)
        if made is None:
            return False
        self._before, self._samples, self._used = before, made.batch, 0
        self._piece += 1
        self.read = made.read
        return True

    def take(self) -> list[Any]:
        """Return the next sample, in a list; none where there is none left."""
        while self._used >= len(self._samples):
            if self._read_next_piece():
                continue
            if not self._begins_again:
                return []
            if not self._piece:
                raise DataError(
                    f"{self.name!r} gave no sample at all in a pass, and the mixture draws from it again and again."
                )
            self._pass, self._piece, self._samples, self._used = self._pass + 1, 0, [], 0
            self._open_pieces()
        self._used += 1
        return [self._samples[self._used - 1]]

    def state_dict(self) -> dict[str, Any]:
        """Return the place: the piece that is being used, where the source stood before it, and how many of it were used."""
        if not self._samples:
            return {"pass": self._pass, "piece": self._piece, "used": 0, "source": self._before}
        return {"pass": self._pass, "piece": self._piece - 1, "used": self._used, "source": self._before}


class StreamMixture(BatchSource):
    """A mixture with streams in it, each of which goes on from its own state or is read again; every rank reads all of it."""

    num_batches = num_samples = None

    def __init__(
        self,
        draws: MixtureDraws,
        sources: Mapping[str, BatchSource],
        options: DataOptions,
        device: torch.device,
        share: RankShare,
    ) -> None:
        self._draws, self._options, self._device, self._share = draws, options, device, share
        again = draws.mixture.at_end == "again"
        self._parts = [
            MixtureSourceReader(name, source, begins_again=again) for name, source in sources.items()
        ]
        self._randomness = SampleRandomness(draws.seed, options.collate)
        self._state: dict[str, Any] = {}
        self._is_loaded = False
        self._form = ""
        why = "each sample's source is a function of the seed and its position"
        if share.size > 1:
            why += f"; each of {share.size} ranks reads all of the sources and takes its own rows"
        self.choices = [Choice("mixture", ", ".join(draws.names), why), *self._choices_of_sources()]

    def _choices_of_sources(self) -> Iterator[Choice]:
        for part in self._parts:
            yield from (each._replace(name=f"{each.name} of {part.name}") for each in part.source.choices)

    def tell_choices(self, told: Callable[[Choice], None]) -> None:
        """Tell all choices, and again each that becomes another one."""
        told(self.choices[0])
        for part in self._parts:
            part.source.tell_choices(partial(_tell_choice_of_source, told, part.name))

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[Any]:
        """Yield the batches of `epoch` from number `start` on."""
        return (made.batch for made in self.made(epoch, start))

    def made(self, epoch: int, start: int = 0) -> Iterator[BatchWithOrigin]:
        """Yield the batches of `epoch` from number `start` on; they are read again up to there where no place is known."""
        saved = self._state if self._is_state_at(epoch, start) else {}
        # its last batch was short
        if saved and sum(saved["drawn"].values()) < start * self._draws.batch_size:
            return
        if not (saved and self._is_loaded):
            self._load_sources(saved)
        self._is_loaded = False
        for part in self._parts:
            part.begin(epoch, _saved_state_of_source(saved, part))
        batch = start if saved else 0
        while batch < start:
            if len(self._samples(self._draws.parts(epoch, batch))) < self._draws.batch_size:
                return
            batch += 1
        for made, state in self._move_batches_to_device(self._make_batches(epoch, batch)):
            if not self._form:
                in_columns = made.making.in_columns
                self._form = describe_batch_types(made.batch, in_columns=in_columns, with_sizes=True)
            self._state = state
            yield made

    def _is_state_at(self, epoch: int, start: int) -> bool:
        return bool(self._state) and (self._state["epoch"], self._state["batches"]) == (epoch, start)

    def _make_batches(self, epoch: int, batch: int) -> Iterator[tuple[BatchWithOrigin, dict[str, Any]]]:
        size, read = self._draws.batch_size, ""
        while True:
            drawn, parts = self._draws.drawn(epoch, batch), self._draws.parts(epoch, batch)
            read = self._draws.schedule_draws_digest(parts, read)
            samples = self._samples(parts)
            is_short = len(samples) < size
            for part in parts[: len(samples)].tolist():
                drawn[self._draws.names[part]] += 1
            if not samples or (is_short and self._options.drop_last):
                return
            made = self._collate_rank_rows(samples, epoch, batch * size)
            batch += 1
            places = {part.name: part.state_dict() for part in self._parts}
            made = made._replace(read=f"{made.read} {read}")
            yield made, {"epoch": epoch, "batches": batch, "drawn": drawn, "parts": places}
            if is_short:
                return

    def _samples(self, parts: Indices) -> list[Any]:
        """Return the samples of a batch, fewer where a source has none left."""
        samples: list[Any] = []
        for part in parts.tolist():
            taken = self._parts[part].take()
            if not taken:
                break
            samples += taken
        return samples

    def _collate_rank_rows(self, samples: list[Any], epoch: int, position: int) -> BatchWithOrigin:
        """Return this rank's rows of a batch; a batch without rows is made of one sample, which knows what it looks like."""
        rows = samples[self._share.of(len(samples))]
        making = BatchOrigin(len(rows), self._options.collate is None, num_read=len(samples))
        with self._randomness.borrowed():
            self._randomness.set_generators(self._randomness.keys("mixture collate", epoch, position)[0])
            batch = (self._options.collate or self._options.stack)(rows or samples[:1])
        if not rows:
            batch = batch_rows(batch, 0, 0, making._replace(num_examples=1))
        return BatchWithOrigin(batch, making, " ".join(part.read for part in self._parts))

    def _move_batches_to_device(
        self, made: Iterator[tuple[BatchWithOrigin, Any]]
    ) -> Iterator[tuple[BatchWithOrigin, Any]]:
        waiting: list[tuple[BatchWithOrigin, Any]] = []

        def iterate_batches() -> Iterator[Any]:
            for each in made:
                waiting.append(each)
                yield each[0].batch

        for batch in batches_to_device(iterate_batches(), self._device):
            first, state = waiting.pop(0)
            yield first._replace(batch=batch), state

    @property
    def why_endless(self) -> str:
        """Why a pass of it has no end."""
        return endless_mixture_reason(self._draws.mixture)

    def made_for_evaluation(self) -> Iterator[BatchWithOrigin]:
        """Yield what an evaluation reads."""
        refuse_endless_evaluation(self._draws.mixture)
        raise DataError("net.evaluate was given a mixture with a stream in it: evaluate its sources singly.")

    def form(self) -> str:
        """Return types and shapes of its first batch."""
        return self._form

    def fingerprint(self) -> dict[str, Any]:
        """Return those of all sources, and how they are mixed."""
        sources = {part.name: part.source.fingerprint() for part in self._parts}
        order = describe_data_options(self._options)
        return {"kind": "mixture", "sources": sources, "order": order, **self._draws.describe()}

    def facts(self) -> dict[str, Any]:
        """Return what the ranks compare."""
        return {**self.fingerprint(), "sources": {part.name: part.source.facts() for part in self._parts}}

    def drawn(self) -> dict[str, int]:
        """Return how many samples were drawn from each source in this pass."""
        found: dict[str, int] = self._state.get("drawn", dict.fromkeys(self._draws.names, 0))
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return where the pass and each source stand."""
        return self._state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state` when the next batches are asked for."""
        self._state, self._is_loaded = state, True
        if state:
            self._draws.load_state_dict(state)
            self._load_sources(state)

    def _load_sources(self, state: Mapping[str, Any]) -> None:
        for part in self._parts:
            part.source.load_state_dict(_saved_state_of_source(state, part).get("source", {}))

    def accept_other_data(self) -> None:
        """Say where a stream differs from what was read of it, and go on."""
        for part in self._parts:
            part.source.accept_other_data()

    def how_it_resumes(self, epoch: int, start: int) -> str | None:
        """Return what was drawn so far, and from where each stream goes on."""
        if not start or not self._is_state_at(epoch, start):
            return f"re-reading {start:,} batches of its pass" if start else None
        told = [f"behind {describe_draws(self.drawn())}"]
        for part in self._parts:
            place = _saved_state_of_source(self._state, part)
            if how := part.source.how_it_resumes(epoch + place["pass"], place["piece"]):
                told.append(f"{part.name!r} {how}")
        return "goes on " + "; ".join(told)

    def what_it_costs(self) -> str | None:
        """Return what that every rank reads all of it costs."""
        size = self._share.size
        return (
            None
            if size == 1
            else f"each of {size} ranks reads all of its sources and takes its own rows, {size} times the reading"
        )

    def close(self) -> None:
        """End the worker processes."""
        for part in self._parts:
            part.source.close()


def _tell_choice_of_source(told: Callable[[Choice], None], name: str, choice: Choice) -> None:
    told(choice._replace(name=f"{choice.name} of {name}"))


def _saved_state_of_source(state: Mapping[str, Any], part: MixtureSourceReader) -> dict[str, Any]:
    """Return where a source stood at a save; nothing where it is not known."""
    found: dict[str, Any] = state.get("parts", {}).get(part.name, {})
    return found
