# SPDX-License-Identifier: Apache-2.0
"""Whether this process was started again by whatever launched it: a requeued job, a worker that its agent replaced."""

import os
import socket
from typing import NamedTuple


class LauncherJob(NamedTuple):
    """What the launchers say: the same `job` is the same work, and `attempt` counts its restarts."""

    job: str
    attempt: str
    is_restart: bool


def launcher_job() -> LauncherJob | None:
    """Return what the environment says of this process's launcher, None without one."""
    found = [each for each in (_slurm_job(), _torchelastic_job()) if each is not None]
    if not found:
        return None
    jobs, attempts, restarts = zip(*found, strict=True)
    return LauncherJob(" ".join(jobs), " ".join(attempts), any(restarts))


def _slurm_job() -> LauncherJob | None:
    job = os.environ.get("SLURM_JOB_ID")
    if not job:
        return None
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    name = f"{array}_{task}" if array and task else job
    return _make_launcher_job(f"slurm:{name}", os.environ.get("SLURM_RESTART_COUNT"))


def _torchelastic_job() -> LauncherJob | None:
    name = os.environ.get("TORCHELASTIC_RUN_ID")
    if not name:
        return None
    if os.environ.get("SLURM_JOB_ID"):
        return _make_launcher_job("torchelastic", os.environ.get("TORCHELASTIC_RESTART_COUNT"))
    # "none" is torchrun's name for all runs that were given none: the agent, which starts a worker again, tells them apart
    agent = f"{socket.gethostname()}:{os.getppid()}" if name == "none" else name
    return _make_launcher_job(f"torchelastic:{agent}", os.environ.get("TORCHELASTIC_RESTART_COUNT"))


def _make_launcher_job(job: str, count: str | None) -> LauncherJob:
    attempt = count if count and count.isdigit() else "0"
    return LauncherJob(job, attempt, attempt != "0")
