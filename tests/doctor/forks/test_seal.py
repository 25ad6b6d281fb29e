# SPDX-License-Identifier: Apache-2.0
"""The seal: whatever a child does, its parent's files, memory, positions, peers and processes stay as they were."""

import os
import signal
import time

import pytest

from truestep.doctor.forks.fork import run_in_sealed_child
from truestep.doctor.forks.fork_obstacles import why_no_fork

from .attacks import ATTACKS, REFUSED, call

pytestmark = pytest.mark.skipif(why_no_fork() is not None, reason=f"no child is forked here: {why_no_fork()}")


def unsealed(blow):
    """Strike from a plain fork, as a child would without the seal."""
    process = os.fork()
    if process == 0:
        try:
            blow()
        finally:
            os._exit(0)
    handle, until = os.pidfd_open(process), time.monotonic() + 20
    while os.waitpid(process, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        time.sleep(0.01)
    os.close(handle)


def told_by(blow):
    """Return what a sealed child says of a blow."""

    def strike():
        try:
            blow()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "done"

    return run_in_sealed_child(strike, seconds=5)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_sealed_child_touches_nothing_of_its_parent_s(name, tmp_path):
    attack = ATTACKS[name](tmp_path)
    outcome = told_by(next(attack))
    assert next(attack), outcome
    assert list(attack) == []


# the kernel may keep a plain fork from it too, or it would leave the tests with other settings, or waiting for ever
NOT_STRUCK = {"memory of the parent", "scheduling and limits", "next batch of a worker"}


@pytest.mark.parametrize("name", [each for each in ATTACKS if each not in NOT_STRUCK])
def test_the_same_from_a_plain_fork_does_harm(name, tmp_path):
    attack = ATTACKS[name](tmp_path)
    unsealed(next(attack))
    assert not next(attack)


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_is_not_listed_is_refused(name):
    told = told_by(lambda: call(name, 0, 0, 0, 0, 0))
    assert told.failure is None
    assert told.value.startswith("PermissionError")
