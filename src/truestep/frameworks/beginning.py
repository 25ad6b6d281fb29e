# SPDX-License-Identifier: Apache-2.0
"""What a training was begun with: a checkpoint is gone on from with the same, or refused by what is another."""

import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import LRScheduler

from truestep.core.errors import OptionError
from truestep.frameworks.kept import KeptCheckpoints

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


def refuse_trainer_of(other: str, library: str, own: str) -> NoReturn:
    """Raise an OptionError: the hooks of the other library's Trainer have other names."""
    raise OptionError(
        f"ts.{library}.ExactResume is a callback of {own}, and was given to that of {other}, which would never tell it of a "
        f"batch. Write ts.{other.lower()}.ExactResume(directory)."
    )


def refuse_two(given: Sequence[object]) -> None:
    """Raise an OptionError for several callbacks in one Trainer: one alone can keep the place."""
    if given[1:]:
        what = "the same ExactResume twice" if given[0] is given[1] else "two ExactResume"
        raise OptionError(
            f"The Trainer was given {what}, and one keeps all of a training, in one directory. Write callbacks=[exact], and "
            "keep=3 for more checkpoints."
        )


class Beginning:
    """What a training was begun with: kept with each place, and compared with what the code gives where it goes on."""

    def __init__(self, kept: KeptCheckpoints) -> None:
        self._kept = kept
        self.facts: dict[str, Any] = {}
        self._options: dict[str, Any] = {}
        self._schedules: list[_AsMade] = []
        self._made_schedules: list[_AsMade] = []
        self._seed: int | None = None
        self._no_effect: list[str] = []  # said once it is known that the checkpoint is gone on from

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

    def data(self, loader: Any, accumulation: int, strategy: Any = None) -> None:
        """Refuse other numbers by which a place in a pass is counted; say what another number of workers does."""
        samples, sampler = None, getattr(loader, "batch_sampler", None)
        with suppress(AttributeError, TypeError, NotImplementedError):
            samples = len(loader.dataset)
        batch_size = getattr(loader, "batch_size", None) or getattr(sampler, "batch_size", None)
        numbers = {
            "the number of samples": samples,
            "batch_size": batch_size if isinstance(batch_size, int) else None,
        }
        self._refuse_others("training", {**numbers, "the number of batches to a step": accumulation})
        self._refuse_others("way of sampling", {"train_sampling_strategy": strategy})
        order = getattr(sampler, "sampler", None)
        if (
            type(order).__name__ == "SeedableRandomSampler"
        ):  # Accelerate's, with a seed of its own for each pass
            self._refuse_others("order of the samples", {"the seed": getattr(order, "initial_seed", None)})
        now = self.facts["workers"] = getattr(loader, "num_workers", None)
        before = self._kept.place.get("workers", now)
        if before != now:
            _say(
                f"num_workers was {before}, and is {now}: the order of the samples stays, and what the data draw at random for a "
                f"sample is not what a training draws that was not killed. num_workers={before} keeps it."
            )

    def made(self, source: Any, optimizers: "list[_AsMade]", schedules: "list[_AsMade]") -> None:
        """Look at what the code has made, before a checkpoint's state was loaded into it; `source` has options as attributes."""
        self._no_effect.clear()
        optimizers = [each.without_rates_of(schedules) for each in optimizers]
        for what, made in (("optimizer", optimizers), ("schedule", schedules)):
            self._refuse_others(what, {f"the {what}": ", ".join(each.kind for each in made) or "none"})
            numbers = {
                f"{name} of {each.kind}{f' {number}' if made[1:] else ''}": value
                for number, each in enumerate(made, 1)
                for name, value in each.restored.items()
            }
            self._take_no_effect("options" if what == "optimizer" else "numbers of schedules", numbers)
        given = (name for name in f"{_NOT_KEPT} {_OF_SCHEDULE}".split() if hasattr(source, name))
        self._options = {name: _plain(getattr(source, name)) for name in given}
        if "bf16" in self._options:  # the Trainer's, which makes the other of it
            del self._options["mixed_precision"]
        self._made_schedules = schedules
        self._schedules = [each for each in schedules if each.functions]

    def seed(self) -> str:
        """Keep the seed that the code has set; return how it differs from the one that the training began with."""
        now = self._seed = torch.initial_seed()
        self.facts["seeds"] = {"the seed": now, **self._kept.place.get("seeds", {})}
        before = self.facts["seeds"]["the seed"]
        return "" if before == now else f" The seed was {before}, and is {now}: put it back."

    def first_batch(self) -> None:
        """Say so where it is another than when the training began: its streams go on; data that depend on it are refused by now."""
        now, self._seed = self._seed, None
        if now is not None:
            self._take_no_effect("seeds", {"the seed": now})
            self._say_no_effect()

    def step(self, now: int | None, call: str) -> None:
        """Refuse to begin at another step than that of the newest checkpoint."""
        newest = self._kept.newest
        if newest is not None and now != newest.step:
            raise OptionError(
                f"{self._kept.directory} holds a checkpoint of step {newest.step}, and this training does not begin there. Write "
                f"{call}, or {_EMPTY}"
            )

    def length(self, option: str, asked: float | None, done: float, given: float | None = None) -> None:
        """Refuse an end that lies before the checkpoint: nothing would be trained. A training that is over stays over."""
        unit = option if given is None else "steps"  # which several options may say
        before = self._kept.place.get("lengths", {}).get(unit, asked)
        self.facts.setdefault("lengths", {})[unit] = asked
        if self._kept.newest is not None and asked and 0 < asked <= done and not asked == done == before:
            raise OptionError(
                f"{self._kept.directory} holds a checkpoint of step {self._kept.newest.step}, and {option}={given or asked:g} asks "
                f"for no more than is done, so nothing would be trained. Write a larger {option}, or {_EMPTY}"
            )

    def _refuse_others(self, what: str, now: dict[str, Any]) -> None:
        """Keep facts, and refuse a checkpoint of others; None is one that can't be told."""
        before = self._kept.place.get(what) or now
        self.facts[what] = now
        both = {name: (before.get(name, "not there"), now.get(name, "gone")) for name in {**now, **before}}
        others = {name: each for name, each in both.items() if each[0] != each[1] and None not in each}
        told = [f"{name} was {old}, and is {new}" for name, (old, new) in others.items()]
        if told:
            raise OptionError(
                f"{self._kept.directory} holds a checkpoint of another {what}: {told[0]}"
                f"{f' (and {len(told) - 1} more)' if told[1:] else ''}, so it can't go on to the same bits. Put it back as it "
                f"was, or {_EMPTY}"
            )

    def _look_at_ends(self, steps_of: Callable[[Any], float | None] | None) -> None:
        """Refuse a training that is longer than a schedule which comes back with the checkpoint and raises behind its end.

        Where nobody knows how long it will be, the line about the schedule's length says so.
        """
        for number, each in enumerate(self._made_schedules, 1):
            name = f"total_steps of {each.kind}{f' {number}' if self._made_schedules[1:] else ''}"
            before, asked = self._kept.place.get("numbers of schedules", {}).get(name), None
            if before is None or not _raises_behind(each.made, max(before, each.restored["total_steps"])):
                continue
            if steps_of is not None and (asked := steps_of(each.made)) and asked > before:
                raise OptionError(
                    f"{self._kept.directory} holds a checkpoint whose {each.kind} ends at step {before}, behind which it raises, "
                    f"and this training is to make {asked:g}. Train no longer than it was planned for, or {_EMPTY}"
                )
            if steps_of is None:
                end = f" It ends at step {before}: train no longer."
                self._no_effect = [f"{line}{end * line.startswith(name)}" for line in self._no_effect]

    def _take_no_effect(self, what: str, now: dict[str, Any]) -> None:
        """Keep what a checkpoint brings along, and take note of what of the code's is another."""
        before = self.facts[what] = {**now, **self._kept.place.get(what, {})}
        for name, value in now.items():
            if before[name] != value:
                self._no_effect.append(
                    f"{name} is {value} in the code, and was {before[name]} when this training began: it goes on with the "
                    f"checkpoint's, and {value} has no effect. To train with it {_EMPTY}"
                )

    def _say_no_effect(self) -> None:
        for words in self._no_effect:
            _say(words)
        self._no_effect.clear()

    def say_going_on(self, steps_of: Callable[[Any], float | None] | None = None) -> None:
        """Say from where, and what is used from there on that was another before; schedules have their state by now.

        `steps_of`: how many steps a schedule is to make in all, where that is known.
        """
        self._look_at_ends(steps_of)
        self._kept.say_going_on()
        self._say_no_effect()
        others = dict(self._others("options that are used", self._options))
        told = [words for name, words in others.items() if name not in _OF_SCHEDULE.split()]
        for number, schedule in enumerate(self._schedules, 1):
            found = dict(self._others(f"factors of schedule {number}", schedule.factors()))
            ahead = [step for step in found if step >= schedule.made.last_epoch and not schedule.is_over()]
            causes = [others[name] for name in _OF_SCHEDULE.split() if name in others]
            told += (causes or [f"the schedule's factor at step {found[ahead[0]]}"]) if ahead else []
        if told and self._kept.newest is not None:
            _say(
                f"{'; '.join(told)}. From step {self._kept.newest.step} on that is used, so this training ends neither as it was "
                f"begun nor as one with it from the start. Put it back as it was, or {_EMPTY}"
            )

    def _others(self, what: str, now: dict[Any, Any]) -> Iterator[tuple[Any, str]]:
        """Keep what is used, and yield what is another than in the steps before the checkpoint."""
        before = self._kept.place.get(what, {})
        self.facts[what] = now
        for name, value in now.items():
            if name in before and (before[name] or None) != (value or None):
                yield name, f"{name} was {_short(before[name])}, and is {_short(value)}"


class _AsMade(NamedTuple):
    """An optimizer or a schedule as the code makes it."""

    kind: str
    restored: dict[str, Any]
    """Its numbers that are in a checkpoint, too."""
    made: Any = None
    functions: Sequence[Any] = ()
    """Of a schedule; they are in no checkpoint."""
    is_over: Callable[[], bool] = lambda: False

    def without_rates_of(self, schedules: "list[_AsMade]") -> "_AsMade":
        """Leave out what a schedule with rates of its own has put in the place of what the optimizer was made with."""
        own = [each for each in schedules if "max_lr" in each.restored and each.made.optimizer is self.made]
        left = {name: value for name, value in self.restored.items() if name not in ("lr", "momentum")}
        return self._replace(restored=left) if own else self

    def factors(self) -> dict[int, list[float]]:
        """Return what they give at some steps."""
        found: dict[int, list[float]] = {}
        for step in _STEPS:
            with suppress(Exception):  # a table of the user's that ends before
                found[step] = [float(each(step)) for each in self.functions]
        return found


def made_optimizers(optimizers: Iterable[Any]) -> list[_AsMade]:
    """Look at the numbers of their first groups as the code gives them, before a schedule moves them."""
    found = []
    for each in optimizers:
        group = each.param_groups[0]
        given = {**group, "lr": group.get("initial_lr", group.get("lr"))}
        own = {
            name: value for name, value in given.items() if name in each.defaults
        }  # schedules put more there
        options = {name: value for name, value in own.items() if isinstance(value, int | float | None)}
        found.append(_AsMade(type(each).__name__, options, each))
    return found


def made_by(source: Any, kind: str) -> list[_AsMade]:
    """Look at the options from which a framework makes an optimizer."""
    return [_AsMade(kind, {name: getattr(source, name) for name in _RESTORED.split()})]


def made_schedules(schedules: Iterable[Any]) -> list[_AsMade]:
    """Look at the numbers and functions of schedules, and of those within them."""
    found = []
    for each, is_over in (
        part for outer in schedules for part in _parts_of(getattr(outer, "scheduler", outer))
    ):
        # one with rates of its own keeps them in the groups alone, or each group's in a list
        lists = {
            name.removesuffix("s"): value[0]
            for name, value in vars(each).items()
            if isinstance(value, list) and value
        }
        own = {**each.optimizer.param_groups[0], **lists, **vars(each)}
        named = inspect.signature(type(each)).parameters.keys() & own.keys() - _MOVED
        numbers = {name: _plain(own[name]) for name in sorted(named)}
        functions = [
            one for one in getattr(each, "lr_lambdas", ()) if isinstance(one, FunctionType | partial)
        ]
        found.append(_AsMade(type(each).__name__, numbers, each, functions, is_over))
    return found


_Part = tuple[LRScheduler, Callable[[], bool]]


def _parts_of(schedule: Any, outer: Any = None, begins_at: int = 0) -> Iterator[_Part]:
    """Yield a schedule and those within it, each with whether it is over."""
    if isinstance(schedule, LRScheduler):
        outermost = outer or schedule
        yield schedule, lambda: begins_at + schedule.last_epoch < outermost.last_epoch
        begins = [0, *getattr(schedule, "_milestones", ())]
        for number, each in enumerate(getattr(schedule, "_schedulers", ())):
            yield from _parts_of(each, outermost, begins_at + begins[min(number, len(begins) - 1)])


def _raises_behind(schedule: Any, step: int) -> bool:
    """Whether a schedule refuses to be asked for a step behind its last."""
    before, schedule.last_epoch = schedule.last_epoch, step + 1
    try:
        with warnings.catch_warnings(action="ignore"):  # it is said to be asked at a wrong time
            schedule.get_lr()
    except ValueError:
        return True
    finally:
        schedule.last_epoch = before
    return False


def _short(value: Any) -> Any:
    return ", ".join(dict.fromkeys(f"{each:.3g}" for each in value)) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    value = value.value if isinstance(value, Enum) else value
    return value if isinstance(value, int | float | str | None) else str(value)


def _say(words: str) -> None:
    sys.stderr.write(f"truestep: {words}\n")
