# SPDX-License-Identifier: Apache-2.0
"""What a run is told when it is made."""

import math
import os
import re
import signal
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args

from torch import Tensor

from truestep.core.errors import NO_GUESS, OptionError, check_choice, check_number
from truestep.core.guidance import guidance, guidance_by_name
from truestep.core.metric_direction import missing_best_mode_message
from truestep.core.os_specific import UNCATCHABLE_SIGNALS
from truestep.core.text_formatting import a_type, keyword_text
from truestep.engine.policy import NON_FINITE
from truestep.mirror.address import SCHEMES
from truestep.model.layers.interval import check_look_interval
from truestep.report.metrics import is_metric_name

if TYPE_CHECKING:
    from truestep.checkpoints import Retention
    from truestep.engine.shared_context import LearnerContext

StrategyName = Literal["auto", "single", "ddp", "fsdp"]
Resume = Literal["auto", "never", "must", "anew", "edited"]
RESUME: tuple[Resume, ...] = ("auto", "never", "must", "anew", "edited")

_NUMBERS: dict[str, float] = {  # of Saving, each with an example: whole, where the number is
    "every_steps": 1000,
    "every_seconds": 300.0,
    "epoch_seconds": 10.0,
    "keep_last": 2,
    "keep_best": 1,
    "keep_every": 1000,
    "rollback_after": 5,
    "grace_seconds": 25.0,
}
_MAY_BE_NONE = ("every_steps", "every_seconds", "keep_every")


@dataclass(frozen=True, kw_only=True)
class Saving:
    """When a run saves a checkpoint, and which it keeps. Saves happen between two batches, never between two updates.

    Attributes:
        every_steps: save when `run.step` is a multiple of this.
        every_seconds: save when so much time has gone since the last save; None for never.
        at_epoch_end: save at the end of each epoch, but not more often than every `epoch_seconds`.
        epoch_seconds: the least time between two saves at an epoch's end.
        best: save when this logged metric is better than ever.
        best_mode: "max", what None stands for, or "min"; a name that tells of a loss or an error needs one of the two.
        keep_last: how many of the newest stay.
        keep_best: how many of the best stay (with `best`).
        keep_every: those whose step is a multiple of this stay.
        rollback_after: with `nonfinite="rollback"`, go back to the last healthy checkpoint after so many skipped updates in a row.
        grace_seconds: with a mirror, send the last save for so long after the signal that stops the run (a spot machine has 30 to
            120 seconds); what is not there by then is cut off, and the checkpoint before stands.
        background: let a thread write; the training only waits for a copy in memory.
    """

    every_steps: int | None = None
    every_seconds: float | None = 300.0
    at_epoch_end: bool = True
    epoch_seconds: float = 10.0
    best: str | None = None
    best_mode: Literal["max", "min"] | None = None
    keep_last: int = 2
    keep_best: int = 1
    keep_every: int | None = None
    rollback_after: int = 5
    grace_seconds: float = 25.0
    background: bool = True

    def __post_init__(self) -> None:
        for name, example in _NUMBERS.items():
            if (value := getattr(self, name)) is not None or name not in _MAY_BE_NONE:
                check_number("ts.Saving", name, value, example=example)
        self._check_seconds()
        if self.every_steps is not None and self.every_steps < 1:
            raise OptionError(
                f"ts.Saving(every_steps={self.every_steps}): no step is a multiple of it. Give at least 1, every_steps=1000, "
                "or None to save by time and epoch alone."
            )
        if self.best is not None and (not isinstance(self.best, str) or not self.best):
            raise OptionError(
                f"ts.Saving(best={self.best!r}): give the name of what is logged, best='accuracy' for run.log(accuracy=...)."
            )
        if self.rollback_after < 1:
            raise OptionError(
                f"rollback_after={self.rollback_after}: give at least 1; a run can't go back before an update was skipped."
            )
        called = f"ts.Saving(best={self.best!r})"
        if self.best and (said := missing_best_mode_message(called, self.best, self.best_mode)):
            raise OptionError(said)
        if self.keep_last < 1:
            raise OptionError(
                f"ts.Saving(keep_last={self.keep_last}) would keep no checkpoint, and the newest is what a killed run goes on "
                "from, so it is at least 1. Write keep_last=1; with best=... those of the best weights stay beside it."
            )
        self._check_kept_counts()
        self.retention()

    def _check_kept_counts(self) -> None:
        if self.keep_best < 0:
            raise OptionError(
                f"ts.Saving(keep_best={self.keep_best}): give keep_best at least 0, or leave best= out to keep none by it."
            )
        if self.keep_every is not None and self.keep_every < 1:
            raise OptionError(
                f"ts.Saving(keep_every={self.keep_every}): give at least 1, the steps between two that stay, or None."
            )

    def _check_seconds(self) -> None:
        if self.every_seconds is not None and self.every_seconds < 0:
            raise OptionError(f"every_seconds={self.every_seconds}: give a positive time, or None.")
        if self.every_seconds is not None and math.isnan(self.every_seconds):
            raise OptionError("every_seconds=nan: no time would ever be up. Give a positive time, or None.")
        if not self.grace_seconds >= 0:
            raise OptionError(f"grace_seconds={self.grace_seconds}: give seconds, 0 or more; 25 is usual.")

    def retention(self) -> "Retention":
        """Return which checkpoints stay."""
        from truestep.checkpoints import Retention

        return Retention(
            last=self.keep_last,
            best=self.keep_best if self.best or self.keep_best < 0 else 0,
            best_metric=self.best,
            best_mode="max" if self.best_mode is None else self.best_mode,
            every=self.keep_every,
        )

    def beside(self, **told: Any) -> dict[str, Any]:
        """Return what a run is told, and beside it the metric that its best is saved by."""
        best = None if self.best is None else {"metric": self.best, "mode": self.best_mode or "max"}
        return told | ({"best": best} if best else {})

    def is_better(self, value: float, than: float | None) -> bool:
        """Whether `value` of the best metric beats the best so far; NaN never does."""
        if than is None or math.isnan(than):
            return not math.isnan(value)
        return value < than if self.best_mode == "min" else value > than


class RunConfig(dict[str, Any]):
    """A run's configuration, which says where it comes from when a name is asked for that it does not have."""

    def __getattr__(self, name: str) -> NoReturn:
        # a protocol that somebody asks for is not there, without more words
        said = f"run.config is a dict. Write run.config[{name!r}]."
        raise AttributeError(name if name.startswith("__") else said, name=name, obj=NO_GUESS)

    def __missing__(self, name: str) -> NoReturn:
        named = f"It has: {', '.join(self)}." if self else "It has no names, since the run was given none."
        raise KeyError(
            f"run.config has no {name!r}: it holds what ts.Run(directory, config={{...}}) was given. {named} "
            f"Write config={{{name!r}: ...}} there, or read the value from where your script has it."
        )


def config_as_json_values(config: Any) -> dict[str, Any]:
    """Return a user's configuration (a mapping, a data class, anything with attributes) as a dict of JSON values."""
    if config is None:
        return RunConfig()
    if is_dataclass(config) and not isinstance(config, type):
        config = asdict(config)
    if not isinstance(config, Mapping):
        if not hasattr(config, "__dict__"):
            raise OptionError(f"config={config!r} has no names; give a dict or a data class of settings.")
        config = vars(config)
    return RunConfig((str(key), _to_json_value(value)) for key, value in config.items())


def _to_json_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _to_json_value(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json_value(member) for member in value]
    if isinstance(value, set | frozenset):
        members = [_to_json_value(member) for member in value]
        try:
            return sorted(members)  # its own order is another in each process
        except TypeError:  # kinds that don't compare: a number beside a name
            return sorted(members, key=repr)
    text = str(value)
    # python's own words for an object are its address, which is another in each process
    if " at 0x" in text:
        raise OptionError(
            f"config holds {text}, which no later process could recognise as the same. Give names, numbers, paths and the like."
        )
    return text


def logged_numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """Return what was logged as numbers, or say what can be logged."""
    return {name: _logged_number(name, value) for name, value in values.items()}


def _logged_number(name: str, value: Any) -> float:
    try:
        # float reads "0.5", and the text of a table logged by mistake as well
        if isinstance(value, str | bytes):
            raise TypeError
        # torch warns of float(tensor) where the tensor has a gradient
        return float(value.detach() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        from truestep.run.logged_value_errors import logged_value_message

        raise OptionError(logged_value_message(name, value)) from None


def check_run_name(name: str, *, by: str) -> None:
    """Raise an OptionError unless a metric, or what is tracked, can be called this."""
    if not is_metric_name(name):
        raise OptionError(
            f"{by} the name {name!r}: such a name is shown on terminals and pages and written as UTF-8, so it is not empty "
            "and has no control codes, line ends or lone surrogates. Write letters, digits, spaces, '/' and the like."
        )


def check_logged_values(
    unnamed: tuple[Any, ...], values: Mapping[str, Any], context: "LearnerContext", known: set[str]
) -> bool:
    """Raise an OptionError where `run.log` is called by a function of a batch, or was given values without names, a dict of them,
    other loggers' options, or names that can't be written; return whether a name is not yet among the `known` ones."""
    if context.is_busy or context.is_measuring:
        raise OptionError(_log_in_batch_function_message(values, measuring=context.is_measuring))
    if unnamed:
        raise OptionError(f"run.log was given {_unnamed_log_value_text(unnamed)}.")
    if values.keys() <= known:
        return False
    place = "run.log(NAME=...)"
    for name in guidance_by_name(place).keys() & values.keys():
        raise OptionError(
            f"run.log has no option {name!r}, and would log it as a value: leave it out, {guidance(place, name)}."
        )
    for name in values:
        check_run_name(name, by="run.log was given")
    return True


def _log_in_batch_function_message(names: Iterable[str], *, measuring: bool) -> str:
    called = f"run.log({', '.join(map(keyword_text, names))}) was called"
    if measuring:
        return (
            f"{called} by the function that net.evaluate calls with each batch, and would write a line for each. Return one value "
            "per example, and log the mean of all: run.log(accuracy=net.evaluate(correct, test)); of several return a dict."
        )
    return (
        f"{called} inside of an update. A loss function may be called several times for one batch (micro-batches, another try), "
        "and each time would write a line. Return the values with the loss, ts.weighted(losses, accuracy=correct): they are "
        "averaged over all updates of a line. Or log behind it: update = net.update(loss, batch), then run.log(...)."
    )


def _unnamed_log_value_text(values: tuple[Any, ...]) -> str:
    first = values[0]
    if isinstance(first, Mapping):
        names = [str(name) for name in first]
        written = f"run.log({', '.join(map(keyword_text, names))}), or "
        return f"a dict; it takes values by name: {written}run.log(**values) for all of a dict"
    if isinstance(first, str) and len(values) > 1:
        return f"a name and its value apart; it takes both together: run.log({keyword_text(first, 'value')})"
    return f"{type(first).__name__} {str(first)[:60]!r} without a name, by which it would be found again: run.log(accuracy=0.9)"


def check_run_directory(directory: Any) -> Path | None:
    """Return the run's directory, absolute, None for none; raises an OptionError for what is no path."""
    if directory is None:
        return None
    if not isinstance(directory, str | os.PathLike):
        raise OptionError(
            f"ts.Run was given {a_type(directory)} first. Give the directory of the run, ts.Run('runs/digits'), say; "
            "metrics and checkpoints go there. A model goes to run.learner(module, optimizer)."
        )
    if (address := _ADDRESS.match(str(directory))) is not None:
        _refuse_address(str(directory), address)
    return Path(directory).absolute()


# `Path("s3://bucket/x")` has lost a slash; one letter is a drive of Windows
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(?=[^/])")


def _refuse_address(directory: str, address: re.Match[str]) -> NoReturn:
    """Raise an OptionError for an address, which would be made as a folder of that name."""
    scheme, rest = address[1], directory[address.end() :]
    name = rest.partition("?")[0].rstrip("/").rpartition("/")[2]
    if scheme == "file":
        written = f"A folder of this machine is written as a path: ts.Run({f'/{rest}'!r})."
    elif scheme in SCHEMES:
        written = f"To keep the run in the store as well write ts.Run({f'runs/{name}'!r}, mirror={f'{scheme}://{rest}'!r})."
    else:
        written = (
            f"Nothing here writes to {scheme}://. A copy in a store is kept by ts.Run({f'runs/{name}'!r}, "
            "mirror='s3://bucket/runs/x'); also gs:// and az://."
        )
    raise OptionError(
        f"ts.Run was given the address {directory.partition('?')[0]!r}, and a run writes into a folder of its own machine. "
        f"{written}"
    )


def check_run_exit_statuses(statuses: Any) -> dict[int, int]:
    """Return the statuses to exit with by signal; raises an OptionError for a signal that can't be caught, or no status."""
    if statuses is None:
        return {}
    if not isinstance(statuses, Mapping):
        raise OptionError(f"exit_statuses={statuses!r}: give a dict, such as {{signal.SIGUSR1: 0}}.")
    caught = signal.valid_signals() - UNCATCHABLE_SIGNALS
    for number, status in statuses.items():
        if number not in caught:
            raise OptionError(
                f"exit_statuses: {number!r} is no signal that a process can catch; write signal.SIGUSR1, say."
            )
        if type(status) is not int or not 0 <= status <= 255:
            raise OptionError(f"exit_statuses: {status!r} is no exit status; give a whole number, 0 to 255.")
    return dict(statuses)


def check_run_options(nonfinite: Any, strategy: Any, saving: Any) -> None:
    """Raise an OptionError unless these options of a run can be used."""
    check_choice("ts.Run", "nonfinite", nonfinite, NON_FINITE)
    check_choice("ts.Run", "strategy", strategy, get_args(StrategyName))
    if saving is not None and not isinstance(saving, Saving):
        number = saving if type(saving) is int and saving > 0 else 100
        raise OptionError(
            f"saving={saving!r}: write ts.Saving(every_steps={number}), which says when to save and what to keep."
        )


def check_run_numbers(*, log_every: Any, watch_layers: Any, timeout_seconds: Any) -> None:
    """Raise an OptionError unless these numbers of a run can be used."""
    check_look_interval(watch_layers, "ts.Run", "watch_layers", least=2, or_none=True)
    check_number("ts.Run", "log_every", log_every, example=10)
    check_number("ts.Run", "timeout_seconds", timeout_seconds, example=600.0)
    if not timeout_seconds > 0:
        raise OptionError(f"timeout_seconds={timeout_seconds}: give more than 0: nobody would be waited for.")
    if log_every < 1:
        raise OptionError(f"log_every={log_every}: give at least 1; metrics are averaged over so many steps.")
