# SPDX-License-Identifier: Apache-2.0
"""What a training was begun with: a checkpoint is gone on from with the same, or refused by what is another."""

import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from enum import Enum
from functools import partial
from itertools import chain, repeat
from math import inf
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import LRScheduler

from truestep.core.errors import OptionError

_EMPTY = "give ExactResume an empty directory."
_RESTORED = "learning_rate weight_decay adam_beta1 adam_beta2 adam_epsilon"
"""Options that stand in the state of an optimizer, and come back with it."""
_NOT_KEPT = (
    # of Lightning's Trainer
    "gradient_clip_val gradient_clip_algorithm precision val_check_interval check_val_every_n_epoch limit_train_batches "
    "limit_val_batches overfit_batches "
    # of the arguments of transformers' Trainer
    "max_grad_norm bf16 fp16 tf32 label_smoothing_factor neftune_noise_alpha optim_args dataloader_drop_last "
    "gradient_checkpointing torch_compile "
    # of an Accelerator
    "mixed_precision step_scheduler_with_optimizer split_batches even_batches"
)
"""Options that change a training and that no checkpoint of these libraries keeps: what the code gives is used."""
_OF_SCHEDULE = "lr_scheduler_type lr_scheduler_kwargs warmup_steps num_train_epochs max_epochs max_steps"
"""Options from which a schedule is made: what they change is seen in its function."""
_STEPS = (*range(32), *(int(32 * 1.25**power) for power in range(50)))  # where a schedule's function is asked
_MOVED = {"last_epoch", "optimizer", "lr_lambda"}  # no numbers of a schedule that stay


class TrainingStart:
    """What a training was begun with: kept with each place, and compared with what the code gives where it goes on."""

    def __init__(self, directory: Path, step: int, place: dict[str, Any]) -> None:
        self._directory, self._step, self._place = directory, step, place
        self.facts: dict[str, Any] = {}
        self._schedules: list[OptimizerOrSchedule] = []
        self._no_effect: list[str] = []  # said once it is known that the checkpoint is gone on from

    def model(self, *models: Any) -> None:
        """Refuse other weights: the framework would raise its own error, or load a part of them."""
        held = (models[0] if len(models) == 1 else nn.ModuleList(models)).state_dict()
        whole = {name: each for name, each in held.items() if isinstance(each, Tensor) and not is_lazy(each)}
        if whole:  # a lazy one has no shape yet
            self._keep_or_refuse_facts(
                "model", {name: str(tuple(each.shape)) for name, each in whole.items()}
            )

    def data(self, loader: Any, accumulation: int, strategy: Any = None) -> None:
        """Refuse other numbers by which a place in a pass is counted; say what another number of workers does."""
        samples, sampler = None, getattr(loader, "batch_sampler", None)
        with suppress(AttributeError, TypeError, NotImplementedError):
            samples = len(loader.dataset)
        size = getattr(loader, "batch_size", None) or getattr(sampler, "batch_size", None)
        sizes = {"the number of samples": samples, "batch_size": size if isinstance(size, int) else None}
        self._keep_or_refuse_facts("training", {**sizes, "the number of batches to a step": accumulation})
        self._keep_or_refuse_facts("way of sampling", {"train_sampling_strategy": strategy})
        order = getattr(sampler, "sampler", None)
        if type(order).__name__ == "SeedableRandomSampler":  # Accelerate's, which seeds each pass
            self._keep_or_refuse_facts(
                "order of the samples", {"the seed": getattr(order, "initial_seed", None)}
            )
        now = self.facts["workers"] = getattr(loader, "num_workers", None)
        before = self._place.get("workers", now)
        if before != now:
            write_to_stderr(
                f"num_workers was {before}, and is {now}: the order of the samples stays, and what the data draw at random for a "
                f"sample is not what a training draws that was not killed. num_workers={before} keeps it."
            )

    def made(
        self, source: Any, optimizers: "list[OptimizerOrSchedule]", schedules: "list[OptimizerOrSchedule]"
    ) -> None:
        """Look at what the code has made, before a checkpoint's state was loaded into it; `source` has options as attributes."""
        # a schedule with rates of its own has put them in the place of what the optimizer was made with
        own = {id(each.live.optimizer) for each in schedules if "max_lr" in each.numbers}
        kinds = {"options": ("optimizer", optimizers), "numbers of schedules": ("schedule", schedules)}
        for kind, (what, made) in kinds.items():
            self._keep_or_refuse_facts(what, {f"the {what}": ", ".join(each.kind for each in made) or "none"})
            numbers = {
                f"{name} of {each.kind}{f' {number}' if made[1:] else ''}": value
                for number, each in enumerate(made, 1)
                for name, value in each.numbers.items()
                if not (name in ("lr", "momentum") and id(each.live) in own)
            }
            self._note_ineffective_changes(kind, numbers)
        given = (name for name in f"{_NOT_KEPT} {_OF_SCHEDULE}".split() if hasattr(source, name))
        used = self.facts["options that are used"] = {
            name: _to_plain_value(getattr(source, name)) for name in given
        }
        if "bf16" in used:  # the Trainer's, which makes the other of it
            used.pop("mixed_precision", None)
        self._schedules = schedules
        self.facts |= {key: factors for key, _, factors in self._schedule_factors()}

    def seed(self) -> str:
        """Keep the seed that the code has set; return how it differs from the one that the training began with."""
        now = torch.initial_seed()
        self._note_ineffective_changes("seeds", {"the seed": now})
        before = self.facts["seeds"]["the seed"]
        return "" if before == now else f" The seed was {before}, and is {now}: put it back."

    def step(self, now: int | None, call: str) -> None:
        """Refuse to begin at another step than that of the newest checkpoint."""
        if self._place and now != self._step:
            self._refuse_checkpoint(
                f"of step {self._step}, and this training does not begin there. Write {call}"
            )

    def length(self, option: str, asked: float | None, done: float, given: float | None = None) -> None:
        """Refuse an end that lies before the checkpoint: nothing would be trained. A training that is over stays over."""
        unit = option if given is None else "steps"  # which several options may say
        before = self._place.get("lengths", {}).get(unit, asked)
        self.facts.setdefault("lengths", {})[unit] = asked
        if self._place and asked and 0 < asked <= done and not asked == done == before:
            self._refuse_checkpoint(
                f"of step {self._step}, and {option}={given or asked:g} asks for no more than is done, so nothing would be "
                f"trained. Write a larger {option}"
            )

    def check_at_first_batch(self, steps_of: Callable[[Any], float | None] | None = None) -> None:
        """Say what is another than before, now that the data are known to be the same, and schedules have their state.

        `steps_of`: how many steps a schedule is to make in all, where that is known.
        """
        for each in self._schedules:
            self._check_schedule_end(each, steps_of)
        for words in self._no_effect:
            write_to_stderr(words)
        options = self.facts["options that are used"]
        others = dict(_changed_values(self._place.get("options that are used", {}), options))
        told = [words for name, words in others.items() if name not in _OF_SCHEDULE.split()]
        for key, schedule, factors in self._schedule_factors():
            found = _changed_values(self._place.get(key, {}), factors)
            now = inf if schedule.is_over() else schedule.live.last_epoch
            ahead = [words for step, words in found if step >= now]
            causes = [others[name] for name in _OF_SCHEDULE.split() if name in others]
            told += (causes or [f"the schedule's factor at step {ahead[0]}"]) if ahead else []
        if told:
            write_to_stderr(
                f"{'; '.join(told)}. From step {self._step} on that is used, so this training ends neither as it was begun nor as "
                f"one with it from the start. Put it back as it was, or {_EMPTY}"
            )
        self._place, self._no_effect = {}, []  # told once

    def _check_schedule_end(
        self, made: "OptimizerOrSchedule", steps_of: Callable[[Any], float | None] | None
    ) -> None:
        """Refuse a training that is longer than a schedule which came back with the checkpoint and raises behind its end.

        Where nobody knows how long it will be, the line about the schedule's length says so.
        """
        end = vars(made.live).get("total_steps")
        asked = end and (steps_of(made.live) if steps_of is not None else end + 1)
        if asked and asked > end and _raises_past_end(made.live, int(asked)):
            if steps_of is not None:
                self._refuse_checkpoint(
                    f"whose {made.kind} ends at step {end}, behind which it raises, and this training is to make {asked:g}. Train "
                    "no longer than it was planned for"
                )
            is_of_it, words = f"total_steps of {made.kind}", f" It ends at step {end}: train no longer."
            self._no_effect = [f"{line}{words * line.startswith(is_of_it)}" for line in self._no_effect]

    def _schedule_factors(self) -> "Iterator[tuple[str, OptimizerOrSchedule, dict[int, list[float]]]]":
        """Yield schedules that have functions, which are in no checkpoint, and what these give at some steps."""
        with_functions = [(each, functions) for each in self._schedules if (functions := each.functions())]
        for number, (made, functions) in enumerate(with_functions, 1):
            found = {}
            for step in _STEPS:
                with suppress(Exception):  # a table of the user's that ends before
                    found[step] = [float(each(step)) for each in functions]
            yield f"factors of schedule {number}", made, found

    def _refuse_checkpoint(self, words: str) -> NoReturn:
        raise OptionError(f"{self._directory} holds a checkpoint {words}, or {_EMPTY}")

    def _keep_or_refuse_facts(self, what: str, now: dict[str, Any]) -> None:
        """Keep facts, and refuse a checkpoint of others; None is one that can't be told."""
        before, self.facts[what] = self._place.get(what) or now, now
        both = [(name, before.get(name, "not there"), now.get(name, "gone")) for name in {**now, **before}]
        told = [f"{name} was {a}, and is {b}" for name, a, b in both if a != b and None not in (a, b)]
        if told:
            more = f" (and {len(told) - 1} more)" if told[1:] else ""
            same = "so it can't go on to the same bits. Put it back as it was"
            self._refuse_checkpoint(f"of another {what}: {told[0]}{more}, {same}")

    def _note_ineffective_changes(self, what: str, now: dict[str, Any]) -> None:
        """Keep what a checkpoint brings along, and take note of what of the code's is another."""
        before = self.facts[what] = {**now, **self._place.get(what, {})}
        self._no_effect += [
            f"{name} is {value} in the code, and was {before[name]} when this training began: it goes on with the "
            f"checkpoint's, and {value} has no effect. To train with it {_EMPTY}"
            for name, value in now.items()
            if before[name] != value
        ]


class OptimizerOrSchedule(NamedTuple):
    """An optimizer or a schedule as the code makes it."""

    kind: str
    numbers: dict[str, Any]
    """Those that are in a checkpoint, too."""
    live: Any = None
    is_over: Callable[[], bool] = lambda: False

    def functions(self) -> list[Any]:
        """Return those of a schedule."""
        every = getattr(self.live, "lr_lambdas", ())
        return [each for each in every if isinstance(each, FunctionType | partial)]


def optimizers_from_options(source: Any, kind: str) -> list[OptimizerOrSchedule]:
    """Look at the options from which a framework makes an optimizer."""
    return [OptimizerOrSchedule(kind, {name: getattr(source, name) for name in _RESTORED.split()})]


def inspect_optimizers(given: Iterable[Any]) -> list[OptimizerOrSchedule]:
    """Look at the numbers of optimizers as the code gives them, or of schedules, and of those within them."""
    return [each for outer in given for each in _iterate_parts(getattr(outer, "scheduler", outer))]


def _iterate_parts(given: Any, is_over: Callable[[], bool] = lambda: False) -> Iterator[OptimizerOrSchedule]:
    if not isinstance(given, LRScheduler) and not hasattr(given, "param_groups"):
        return
    group = getattr(given, "optimizer", given).param_groups[0]  # of the first alone
    if isinstance(given, LRScheduler):
        # one with rates of its own keeps them in the groups alone, or each group's in a list
        lists = {
            key.removesuffix("s"): one[0] for key, one in vars(given).items() if type(one) is list and one
        }
        own = {**group, **lists, **vars(given)}
        names = set(inspect.signature(type(given)).parameters) - _MOVED
    else:  # before a schedule moves it; schedules put more there
        own = {**group, "lr": group.get("initial_lr", group.get("lr"))}
        names = set(getattr(given, "defaults", ()))
    numbers = {
        name: _to_plain_value(own[name]) for name in sorted(names & own.keys()) if not callable(own[name])
    }
    yield OptimizerOrSchedule(type(given).__name__, numbers, given, is_over)
    ends = chain(getattr(given, "_milestones", ()), repeat(inf))
    for part, end in zip(getattr(given, "_schedulers", ()), ends, strict=False):
        yield from _iterate_parts(part, lambda end=end: is_over() or given.last_epoch >= end)  # type: ignore[misc]


def _raises_past_end(schedule: Any, step: int) -> bool:
    """Whether a schedule refuses to be asked for a step behind its last; one before would have it set a momentum, too."""
    before, schedule.last_epoch = schedule.last_epoch, step
    try:
        with warnings.catch_warnings(action="ignore"):  # it is said to be asked at a wrong time
            schedule.get_lr()
    except ValueError:
        return True
    finally:
        schedule.last_epoch = before
    return False


def _changed_values(before: dict[Any, Any], now: dict[Any, Any]) -> Iterator[tuple[Any, str]]:
    for name, value in now.items():
        if name in before and (before[name] or None) != (value or None):
            yield name, f"{name} was {_shorten_value(before[name])}, and is {_shorten_value(value)}"


def _shorten_value(value: Any) -> Any:
    return ", ".join(dict.fromkeys(f"{each:.3g}" for each in value)) if isinstance(value, list) else value


def _to_plain_value(value: Any) -> Any:
    value = value.value if isinstance(value, Enum) else value
    return value if isinstance(value, int | float | str | None) else str(value)


def write_to_stderr(words: str) -> None:
    """Write a line on the standard error stream."""
    sys.stderr.write(f"truestep: {words}\n")
