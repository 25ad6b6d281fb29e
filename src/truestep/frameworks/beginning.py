# SPDX-License-Identifier: Apache-2.0
"""What a training was begun with: a checkpoint is gone on from with the same, or refused by what is another."""

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from truestep.core.errors import OptionError
from truestep.frameworks.kept import KeptCheckpoints

_EMPTY = "give ExactResume an empty directory."


class Beginning:
    """What a training was begun with: kept with each place, and compared with what the code gives where it goes on."""

    def __init__(self, kept: KeptCheckpoints) -> None:
        self._kept = kept
        self.facts: dict[str, Any] = {}

    def model(self, *models: Any) -> None:
        """Refuse other weights: the framework would raise its own error, or load a part of them."""
        shapes = {
            f"{number}.{name}" if models[1:] else name: str(tuple(each.shape))
            for number, model in enumerate(models)
            for name, each in model.state_dict().items()
            if isinstance(each, Tensor) and not is_lazy(each)  # which has no shape yet
        }
        if shapes:
            self._refuse_others("model", shapes)

    def data(self, loader: Any, accumulation: int) -> None:
        """Refuse other numbers by which a place in a pass is counted; say what another number of workers does."""
        samples = None
        with suppress(AttributeError, TypeError, NotImplementedError):
            samples = len(loader.dataset)
        sampler = getattr(loader, "batch_sampler", None)
        batch_size = getattr(loader, "batch_size", None) or getattr(sampler, "batch_size", None)
        self._refuse_others(
            "training",
            {
                "the number of samples": samples,
                "batch_size": batch_size if isinstance(batch_size, int) else None,
                "the number of batches to a step": accumulation,
            },
        )
        order = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
        if (
            type(order).__name__ == "SeedableRandomSampler"
        ):  # Accelerate's, which draws from a seed of its own in each pass
            self._refuse_others("order of the samples", {"the seed": getattr(order, "initial_seed", None)})
        now = self.facts["workers"] = getattr(loader, "num_workers", None)
        before = self._kept.place.get("workers", now)
        if before != now:
            _say(
                f"num_workers was {before}, and is {now}: the order of the samples stays, and what the data draw at random for a "
                f"sample is not what a training draws that was not killed. num_workers={before} keeps it."
            )

    def optimizers(self, optimizers: Iterable[Any]) -> None:
        """Look at the numbers of their first groups as the code gives them, before a schedule moves them."""
        found = []
        for each in optimizers:
            group = each.param_groups[0]
            given = {**group, "lr": group.get("initial_lr", group.get("lr")), "initial_lr": None}
            options = {name: value for name, value in given.items() if isinstance(value, int | float | None)}
            found.append((type(each).__name__, options))
        self.options(found)

    def options(self, optimizers: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Refuse optimizers of other classes; say which of their options have no effect, since the checkpoint's are taken."""
        self._refuse_others("optimizer", {"the optimizer": ", ".join(kind for kind, _ in optimizers)})
        now = {
            f"{name} of {kind}{f' {number}' if optimizers[1:] else ''}": value
            for number, (kind, options) in enumerate(optimizers, 1)
            for name, value in options.items()
        }
        self._say_no_effect("options", now)

    def seed(self) -> None:
        """Say so where the code has set another seed since the training began: its streams go on."""
        self._say_no_effect("seeds", {"the seed": torch.initial_seed()})

    def step(self, now: int | None, call: str) -> None:
        """Refuse to begin at another step than that of the newest checkpoint."""
        newest = self._kept.newest
        if newest is not None and now != newest.step:
            raise OptionError(
                f"{self._kept.directory} holds a checkpoint of step {newest.step}, and this training does not begin there. Write "
                f"{call}, or {_EMPTY}"
            )

    def epochs(self, epochs: float | None, option: str) -> None:
        """Refuse fewer epochs than are done: nothing would be trained, in silence."""
        done = self._kept.place.get("pass", 0)
        if epochs is not None and 0 < epochs < done:
            raise OptionError(
                f"{self._kept.directory} holds a checkpoint of a training that has done {done} epochs, and {option}={epochs:g} "
                f"asks for fewer, so nothing would be trained. Write {option}={done + 1}, or more, or {_EMPTY}"
            )

    def _refuse_others(self, what: str, now: dict[str, Any]) -> None:
        """Keep facts, and refuse a checkpoint of others; None is one that can't be told."""
        before = self._kept.place.get(what) or now
        self.facts[what] = now
        both = {name: (before.get(name, "not there"), now.get(name, "gone")) for name in {**now, **before}}
        told = [
            f"{name} was {old}, and is {new}"
            for name, (old, new) in both.items()
            if old != new and None not in (old, new)
        ]
        if told:
            raise OptionError(
                f"{self._kept.directory} holds a checkpoint of another {what}: {told[0]}"
                f"{f' (and {len(told) - 1} more)' if told[1:] else ''}, so it can't go on to the same bits. Put it back as it "
                f"was, or {_EMPTY}"
            )

    def _say_no_effect(self, what: str, now: dict[str, Any]) -> None:
        """Keep what a checkpoint brings along, and say what of the code's is another."""
        before = self.facts[what] = {**now, **self._kept.place.get(what, {})}
        for name, value in now.items():
            if before[name] != value:
                _say(
                    f"{name} is {value} in the code, and was {before[name]} when this training began: it goes on with the "
                    f"checkpoint's, and {value} has no effect. To train with it {_EMPTY}"
                )


def _say(words: str) -> None:
    sys.stderr.write(f"truestep: {words}\n")
