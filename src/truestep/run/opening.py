# SPDX-License-Identifier: Apache-2.0
"""A run's beginning: its ranks meet, its directory is taken.

What a run is made of is imported here, when one is made, so that the name `ts.Run` alone costs a third of it. Nothing of this is
left to be imported on a run's way out, where perhaps no file can be opened any more.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from truestep.core.secret_values import hide_secrets
from truestep.engine.learner import Learner
from truestep.engine.optimizers import OptimizerFactory
from truestep.engine.options import LearnerOptions, Modules
from truestep.engine.policy import NonFinite
from truestep.engine.shared_context import LearnerContext
from truestep.model.layers.interval import Every
from truestep.run.agreement import RankAgreement
from truestep.run.device import choose_run_device
from truestep.run.directory import (
    OpenedRunDirectory,
    choose_run_directory,
    open_run_directory,
    refuse_foreign_directory,
)
from truestep.run.loop import RunLoop
from truestep.run.options import Resume, Saving, StrategyName, check_run_directory, config_as_json_values
from truestep.run.owning_process import take_over_run_directory
from truestep.run.process_group_setup import join_run_ranks
from truestep.run.session import RunSession
from truestep.run.state import RunState


def join_run(
    device: str | torch.device,
    strategy: StrategyName,
    timeout_seconds: float,
    *,
    seed: int,
    nonfinite: NonFinite,
) -> tuple[LearnerContext, RankAgreement]:
    """Return what a run's learners share, and what its ranks decide by; here the ranks meet."""
    context = LearnerContext(choose_run_device(device), seed=seed, nonfinite=nonfinite)
    return context, join_run_ranks(context, strategy=strategy, timeout_seconds=timeout_seconds)


def directory_chosen_by_rank_0(agreement: RankAgreement, directory: object, resume: Resume) -> Path:
    """Return the directory that rank 0 has chosen for a run."""
    given = check_run_directory(directory)
    chosen = agreement.broadcast_json_from_rank_0(
        "its directory", lambda: str(choose_run_directory(given, resume))
    )
    return Path(chosen)


def make_run_state(
    joined: tuple[LearnerContext, RankAgreement],
    directory: Path,
    saving: Saving,
    resume: Resume,
    *,
    strategy: StrategyName,
    config: Any,
) -> RunState:
    """Return a run without its loop."""
    return RunState(*joined, directory, saving, resume, strategy, config_as_json_values(config))


def make_run_session(
    run: RunState, statuses: Mapping[int, int] | None, *, doctor: bool, watch_layers: Every
) -> tuple[RunSession, RunLoop]:
    """Return what starts, saves and ends a run, and its loop, with its directory taken."""
    session = RunSession(run, statuses, doctor=doctor, watch_layers=watch_layers)
    with session.opening():
        _take_run_directory(run, session)
    return session, RunLoop(run, session)


def _take_run_directory(run: RunState, session: RunSession) -> None:
    """Take the directory, as rank 0; find out whether it holds this run, and what was edited since."""
    resume = {"resume": run.resume_as}
    run.agreement.refuse_rank_differences(
        "the run's configuration", lambda: hide_secrets(run.described) | resume
    )
    if run.context.world is not None:
        take_over_run_directory(run.directory)  # on all ranks at once
    opened = run.agreement.broadcast_json_from_rank_0(
        "the run's directory", lambda: _open_run_directory(run, session)
    )
    run.holds_run, run.edits, salt, is_kept, _ = opened
    run.secrets.use(salt, is_kept=is_kept)
    if not run.is_main:
        session.hold()


def _open_run_directory(run: RunState, session: RunSession) -> OpenedRunDirectory:
    if run.mirrored.address is not None:
        take_over_run_directory(run.directory)  # before its mirror is asked for: this process may have it
        refuse_foreign_directory(run.directory)
        world = run.context.world
        with nullcontext() if world is None else world.busy("fetching the run from its mirror"):
            run.mirrored.open(run.resume_as)
    return open_run_directory(
        run.directory, run.described, run.resume_as, hold=session.hold, secrets=run.secrets
    )


def make_learner(
    modules: Modules, optimizer: OptimizerFactory, options: LearnerOptions, context: LearnerContext
) -> Learner:
    """Return a learner of a run."""
    return Learner(modules, optimizer, options, context)
