# SPDX-License-Identifier: Apache-2.0
"""A mixture of data sets: what is asked for, checked, and which of them each sample of a batch is drawn from."""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from torch.utils.data import DataLoader

from truestep.core.argument_errors import is_argument_error
from truestep.core.errors import DataError, OptionError
from truestep.core.text_formatting import a_type
from truestep.engine.data.batch_digest import chained_digest
from truestep.engine.data.keys import derive_sample_key, sample_keys_at, uniform_from_sample_keys
from truestep.engine.data.options import DataOptions
from truestep.engine.data.permutation import Indices

Weights = Mapping[str, float]
Counts = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Several data sets as one: each sample of a batch is drawn from one of them, as often as its weight says.

    `sources` are what `run.data` takes, by name. `weights` are numbers by the same names, or a function that gives them for the
    number of the batch, from 0 on. Each source comes in its own order, every sample once before any comes again.

    `at_end` says what happens where a source has no sample left: "again" begins its next pass, so the mixture is endless
    (`run.batches(source, limit=...)` says how long a pass of the loop is); "stop" ends the pass there.
    """

    sources: Mapping[str, Any]
    weights: Weights | Callable[[int], Weights] = dataclasses.field(kw_only=True)
    at_end: Literal["again", "stop"] = dataclasses.field(default="again", kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.sources, Mapping) or not self.sources:
            raise OptionError(
                f"ts.Mixture was given {a_type(self.sources)}: give data sets by name, ts.Mixture({{'web': web, 'code': code}}, "
                "weights={'web': 0.7, 'code': 0.3})."
            )
        if self.at_end not in ("again", "stop"):
            raise OptionError(f"at_end={self.at_end!r} is none of: 'again', 'stop'.")
        for name, data in self.sources.items():
            if not isinstance(name, str):
                raise OptionError(
                    f"ts.Mixture was given a source named {name!r}: names are strings, under which the run logs and keeps what was "
                    f"drawn. Write {str(name)!r}, in sources and in weights."
                )
            if isinstance(data, (Mixture, DataLoader)):
                raise OptionError(
                    f"ts.Mixture was given {a_type(data)} as {name!r}: give the data sets themselves, here {name!r}'s, and their "
                    "batch size, order and workers to run.data."
                )
        if not callable(self.weights):
            _checked_weights(self.weights, self.sources, "weights")


def _checked_weights(weights: Any, sources: Mapping[str, Any], what: str) -> npt.NDArray[np.float64]:
    """Return the weights in the order of the sources."""
    if not isinstance(weights, Mapping) or weights.keys() != sources.keys():
        given = sorted(map(str, weights)) if isinstance(weights, Mapping) else weights
        raise OptionError(f"{what} of ts.Mixture are {given}: give one number for each of {sorted(sources)}.")
    numbers = [_weight_as_float(weights[name]) for name in sources]
    if not all(math.isfinite(each) and each >= 0 for each in [*numbers, sum(numbers)]) or not any(numbers):
        raise OptionError(
            f"{what} of ts.Mixture are {dict(weights)}: give finite numbers of at least 0, and one above 0."
        )
    return np.array(numbers)


def _weight_as_float(weight: Any) -> float:
    """Return a weight as a float; NaN for what is no single number."""
    if isinstance(weight, (str, bytes)):
        return math.nan
    try:
        return float(weight)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # what tensors raise, too
        return math.nan


def check_mixture_options(options: DataOptions) -> None:
    """Raise an OptionError for what can't be asked of a mixture."""
    if options.batch_size is None:
        raise OptionError("batch_size is missing: write run.data(ts.Mixture(...), batch_size=512).")
    for name in ("weights", "num_samples", "by_length", "per_rank"):
        if getattr(options, name) not in (None, False):
            raise OptionError(
                f"{name}= can't be asked of a mixture, which draws from its sources by ts.Mixture(..., weights=...); every rank "
                "takes its rows of each batch by itself. Leave it out."
            )


class MixtureDraws:
    """From which source each sample comes: a function of the seed, the epoch and the position, and of the weights at its batch."""

    def __init__(self, mixture: Mixture, batch_size: int, seed: int) -> None:
        self.names = [*mixture.sources]
        self.batch_size, self.mixture, self.seed = batch_size, mixture, seed
        self.is_scheduled = callable(mixture.weights)
        self._known = (0, 0, np.zeros(len(self.names), dtype=np.int64))  # epoch, batches, counts

    def parts(self, epoch: int, batch: int, number: int = 1) -> Indices:
        """Return the numbers of the sources of `number` batches, from `batch` on; of a schedule ask for one at a time."""
        assert number == 1 or not self.is_scheduled
        positions = np.arange(batch * self.batch_size, (batch + number) * self.batch_size)
        key = derive_sample_key(self.seed, "mixture", epoch)
        numbers = uniform_from_sample_keys(sample_keys_at(key, positions))
        weights = self._weights_of_batch(batch)
        sums = np.cumsum(weights)
        found: Indices = np.searchsorted(sums, numbers * sums[-1], side="right")
        # a number just below 1 may round up to the sum
        drawn: Indices = np.minimum(found, np.flatnonzero(weights)[-1])
        return drawn

    def schedule_draws_digest(self, parts: Indices, before: str) -> str:
        """Return what tells from which sources batches were drawn by a schedule, the last of them these; nothing for numbers."""
        if not self.is_scheduled:
            return ""
        return chained_digest(before, hashlib.blake2b(parts.tobytes(), digest_size=8).hexdigest())

    def _weights_of_batch(self, batch: int) -> npt.NDArray[np.float64]:
        given = self.mixture.weights
        if not callable(given):
            return _checked_weights(given, self.mixture.sources, "weights")
        return _checked_weights(
            _schedule_weights(given, batch), self.mixture.sources, f"weights at batch {batch}"
        )

    def counts(self, epoch: int, batches: int) -> Counts:
        """Return how many samples the first batches of an epoch were drawn from each source; counted on from what is known."""
        before, done, counts = self._known
        if before != epoch or done > batches:
            done, counts = 0, np.zeros(len(self.names), dtype=np.int64)
        while done < batches:
            number = 1 if self.is_scheduled else min(batches - done, max(1, (1 << 20) // self.batch_size))
            counts = counts + np.bincount(self.parts(epoch, done, number), minlength=len(counts))
            done += number
        self._known = (epoch, done, counts)
        return counts

    def drawn(self, epoch: int, batches: int) -> dict[str, int]:
        """Return the same by name."""
        return dict(zip(self.names, self.counts(epoch, batches).tolist(), strict=True))

    def state_dict(self, epoch: int, batches: int) -> dict[str, Any]:
        """Return the place behind so many batches; what was drawn is part of it, since weights may change."""
        return {"epoch": epoch, "batches": batches, "drawn": self.drawn(epoch, batches)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Count on from a place."""
        drawn = state["drawn"]
        self._known = (
            state["epoch"],
            state["batches"],
            np.array([drawn.get(each, 0) for each in self.names]),
        )

    def describe(self) -> dict[str, Any]:
        """Return, as JSON, what the draws depend on; of a function that it is one."""
        weights = self.mixture.weights
        told: Any = "a function of the batch" if callable(weights) else dict(weights)
        return {"names": self.names, "weights": told, "at_end": self.mixture.at_end}


def _schedule_weights(schedule: Callable[[int], Weights], batch: int) -> Weights:
    """Return what a schedule gives for a batch."""
    try:
        return schedule(batch)
    except Exception as error:
        if isinstance(error, TypeError) and is_argument_error(error):
            raise OptionError(
                "weights= of ts.Mixture is a function that can't be called with the number of the batch, its one argument. Write "
                "def weights(batch): return {'web': 0.7, 'code': 0.3}."
            ) from error
        error.add_note(f"This happened while weights= of ts.Mixture was asked for batch {batch:,}.")
        raise


def describe_draws(drawn: Mapping[str, int]) -> str:
    """Return in words what was drawn from each source."""
    return ", ".join(f"{number:,} of {name!r}" for name, number in drawn.items())


def endless_mixture_reason(mixture: Mixture) -> str:
    """Return why a mixture has no end; "" where it has one."""
    return "a mixture with at_end='again' begins its sources again" if mixture.at_end == "again" else ""


def refuse_endless_evaluation(mixture: Mixture) -> None:
    """Raise a DataError where an evaluation would never come to its end."""
    if mixture.at_end == "again":
        raise DataError(
            "net.evaluate was given a mixture with at_end='again', which has no end. Give ts.Mixture(..., at_end='stop'), or the "
            "sources one by one, so that each has a figure of its own."
        )
