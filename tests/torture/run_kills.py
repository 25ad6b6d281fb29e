# SPDX-License-Identifier: Apache-2.0
"""Disturb whole runs, with data workers, in every phase and in every way a machine knows, until they have reached their end.

A run is disturbed a dozen times: it, one of its workers or all of them are killed, it is asked to stop, held and let go on, or
its data fail once. Then it is left alone, and must end with the bits of one that never was disturbed. Besides, each process
writes its number down before it publishes or prunes: nobody but the process that trains may be among them.
"""

import itertools
import os
import random
import shutil
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch
from support import trainings
from support.trainings import Training

import truestep as ts
from truestep.checkpoints import checkpoint_commit, checkpoint_removal, store
from truestep.engine import evaluation
from truestep.run.run_end import RunEnd

PHASES = ("first fetch", "fetch", "body", "evaluation", "first save", "save", "prune", "close", "any moment")
WAYS = {
    "KILL": signal.SIGKILL,
    "KILL worker": signal.SIGKILL,
    "KILL all": signal.SIGKILL,
    "TERM": signal.SIGTERM,
    "INT": signal.SIGINT,
    "HUP": signal.SIGHUP,
    "STOP": signal.SIGSTOP,
    "raise": None,
}
FAILED = "the disk was away"
DISTURBANCES = 12  # of one run, before it is left alone
SECONDS = 120.0


@dataclass
class Plan:
    """One disturbance: what happens, in which phase, at its which occurrence."""

    way: str
    phase: str
    occurrence: int
    journal: Path
    process: int = 0
    left: int = 0

    def reached(self, phase: str) -> None:
        """A phase is reached in this process; strike if it is time."""
        if phase != self.phase.removeprefix("first "):
            return
        self.left -= 1
        if self.left == 0:
            self.strike()

    def strike(self) -> None:
        number = WAYS[self.way]
        if number is None:
            with self.journal.open("a") as file:
                file.write("struck\n")
            raise OSError(FAILED)
        targets = self._targets()
        if targets:
            with self.journal.open("a") as file:
                file.write("struck\n")
        for target in targets:
            with suppress(ProcessLookupError):
                os.kill(target, number)

    def _targets(self) -> list[int]:
        if self.way == "KILL worker" and torch.utils.data.get_worker_info() is not None:
            return [os.getpid()]
        workers = [child.pid for child in psutil.Process(self.process).children()]
        if self.way == "KILL worker":
            return workers[:1]
        return [*workers, self.process] if self.way == "KILL all" else [self.process]


def before(owner: Any, name: str, act: Callable[[], None]) -> None:
    """Let `act` happen before each call of a function; in a process that is only here to be disturbed."""
    function = getattr(owner, name)

    def wrapped(*given: Any, **options: Any) -> Any:
        act()
        return function(*given, **options)

    setattr(owner, name, wrapped)


def attempt(directory: Path, training: Training, plan: Plan | None, uncaught: str) -> bytes:
    """Train on in this process, which is a new one, and return how that ended."""
    if plan is not None:
        plan.process, plan.left = os.getpid(), plan.occurrence
        before(trainings.Samples, "__getitem__", lambda: plan.reached("fetch"))
        before(evaluation._Totals, "add", lambda: plan.reached("evaluation"))
        before(checkpoint_commit, "_write_image", lambda: plan.reached("save"))
        before(checkpoint_removal, "remove_checkpoints", lambda: plan.reached("prune"))
        before(RunEnd, "_release_everything", lambda: plan.reached("close"))
    journal = directory.with_suffix(".journal")

    def sign() -> None:
        with journal.open("a") as file:
            file.write(f"writes {os.getpid()}\n")

    before(store, "commit_checkpoint", sign)
    before(store, "prune_checkpoints", sign)
    try:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        interrupt = None if plan is None else lambda run: plan.reached("body")
        return f"end {trainings.train(directory, training, interrupt=interrupt, as_block=uncaught == 'with')}".encode()
    except SystemExit as left:
        return f"left {left.code}".encode()
    except BaseException as error:
        if uncaught == "hook":
            sys.excepthook(type(error), error, error.__traceback__)
        return f"raised {type(error).__name__}: {error}".encode()


@dataclass
class Report:
    """What many disturbances did."""

    runs: int = 0
    kills: int = 0
    by_way: Counter = field(default_factory=Counter)
    by_phase: Counter = field(default_factory=Counter)
    wrong_ends: list[str] = field(default_factory=list)
    foreign_checkpoints: list[str] = field(default_factory=list)


def torture(folder: Path, kills: int, *, runs: int, seed: int = 0) -> Report:
    """Disturb trainings of all kinds until there were so many kills of so many runs."""
    dice = random.Random(seed)
    report = Report()
    expected: dict[Training, str] = {}
    plans = itertools.cycle(dice.sample(pairs := list(itertools.product(WAYS, PHASES)), len(pairs)))
    while report.kills < kills or report.runs < runs:
        training = some_training(dice)
        if training not in expected:
            expected[training] = run_once(folder / f"whole-{len(expected)}", training, None, "with")
            assert expected[training].startswith("end"), expected[training]
        disturb(folder / str(report.runs), training, expected[training], dice, plans, report)
        report.runs += 1
    return report


def some_training(dice: random.Random) -> Training:
    saving = ts.Saving(
        every_steps=dice.choice([1, 2, 4]),
        every_seconds=0.2,
        epoch_seconds=0.0,
        background=dice.random() < 0.7,
    )
    return Training(
        augmentation=dice.choice(["python", "numpy", "torch"]),
        workers=dice.choice([0, 1, 2, 3]),
        ema=dice.random() < 0.5,
        two_learners=dice.random() < 0.5,
        micro_batch=dice.choice([None, 3]),
        saving=saving,
    )


def disturb(
    directory: Path, training: Training, expected: str, dice: random.Random, plans: Any, report: Report
) -> None:
    """Disturb one run a dozen times, then let it end."""
    journal = directory.with_suffix(".journal")
    journal.touch()
    story = []
    for _ in range(DISTURBANCES):
        way, phase = next(plans)
        if (way == "raise" and "fetch" not in phase) or (way == "KILL worker" and not training.workers):
            way = "KILL"
        occurrence = 1 if phase.startswith("first") or phase == "close" else dice.randint(1, 12)
        struck = journal.read_text().count("struck")
        end = run_once(
            directory, training, Plan(way, phase, occurrence, journal), dice.choice(["with", "hook"])
        )
        if phase == "any moment" or journal.read_text().count("struck") > struck:
            report.kills += 1
            report.by_way[way] += 1
            report.by_phase[phase] += 1
        story.append(f"{way} in {phase} {occurrence}: {end}")
        if not is_told(end, way):
            report.wrong_ends.append(f"{directory} {training}: {story}")
        if end.startswith("end"):
            break
    end = run_once(directory, training, None, "with")
    if end != expected:
        report.wrong_ends.append(f"{directory} {training}: {end} instead of {expected} after {story}")
    trained = {line for line in journal.read_text().splitlines() if line.startswith("trains")}
    wrote = {line for line in journal.read_text().splitlines() if line.startswith("writes")}
    report.foreign_checkpoints += [
        f"{directory}: {line}" for line in wrote if line.replace("writes", "trains") not in trained
    ]
    if not any(str(directory) in line for line in [*report.wrong_ends, *report.foreign_checkpoints]):
        shutil.rmtree(directory)


def is_told(end: str, way: str) -> bool:
    """Whether a process ended as one does that was disturbed in this way: nothing else went wrong in it."""
    allowed = {
        "TERM": ("left 143", "killed"),  # killed where no loop listened yet, or any more
        "INT": ("left 130", "raised KeyboardInterrupt"),
        "HUP": ("left 129", "killed"),
        "raise": (f"raised OSError: {FAILED}", "raised OSError: Caught OSError in DataLoader worker"),
        "KILL worker": ("raised DataError: a worker process died", "killed"),
        "KILL all": ("raised DataError: a worker process died", "killed"),  # one after the other
    }
    return end.startswith(("end", *allowed.get(way, ("killed",))))


def run_once(directory: Path, training: Training, plan: Plan | None, uncaught: str) -> str:
    """Train in a forked process that leads a session of its own, disturb it as planned, and return how it ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os.close(reader)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.write(writer, attempt(directory, training, plan, uncaught))
        finally:
            os._exit(0)
    os.close(writer)
    with directory.with_suffix(".journal").open("a") as file:
        file.write(f"trains {child}\n")
    moment = time.monotonic() + random.random() if plan and plan.phase == "any moment" else None
    _await(child, moment, plan)
    time.sleep(
        0.02 if plan else 0.0
    )  # for workers to see that nobody is there any more, and to do what they do then
    _end_session(child)
    with os.fdopen(reader, "rb") as pipe:
        return pipe.read().decode() or "killed"


def _await(child: int, moment: float | None, plan: Plan | None) -> None:
    """Wait for a process; strike at the moment, and let it go on where it was stopped."""
    deadline = time.monotonic() + SECONDS
    while True:
        number, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
        if number and os.WIFSTOPPED(status):
            time.sleep(0.01)
            os.kill(child, signal.SIGCONT)
        elif number:
            return
        if moment is not None and time.monotonic() >= moment:
            moment = None
            plan.process = child
            with suppress(psutil.NoSuchProcess):
                plan.strike()
        if time.monotonic() > deadline:
            _end_session(child)
        time.sleep(0.002)


def _end_session(leader: int) -> None:
    for process in psutil.pids():
        with suppress(ProcessLookupError):
            if os.getsid(process) == leader:
                os.kill(process, signal.SIGKILL)
