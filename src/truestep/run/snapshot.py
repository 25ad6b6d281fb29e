# SPDX-License-Identifier: Apache-2.0
"""Everything a checkpoint holds of a run, put together and taken apart."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from truestep.engine.randomness import host_streams, set_host_streams
from truestep.engine.state import from_tree, to_tree
from truestep.errors import CheckpointError, nearest
from truestep.run.fingerprint import fingerprint
from truestep.run.history import Mark
from truestep.run.user_state import check_user_state

if TYPE_CHECKING:
    from truestep.run.run import Run


def take(run: "Run") -> dict[str, Any]:
    """Return the run's whole state as a tree of tensors and JSON values."""
    check_user_state(run.state)
    return {
        "learners": {name: learner.training_state() for name, learner in run.context.learners.items()},
        "cursor": run.cursor.state_dict(),
        "random": random_state(run.context.device),
        "random_at_epoch": run.session.random_at_epoch,
        "logbook": run.logbook.state_dict(),
        "best": run.best,
        "user": to_tree(run.state),
        "environment": fingerprint(run.context.device),
    }


def put_back(run: "Run", state: dict[str, Any], marks: Sequence[Mark]) -> list[str]:
    """Bring a run to where `state` was taken; what does not fit is refused before anything is touched.

    `marks` say which lines of metrics the checkpoints need that are there. Returns what the code now decides otherwise.
    """
    differences = []
    _check_learners(run, state["learners"])
    run.cursor.check(state["cursor"])
    run.cursor.load_state_dict(state["cursor"])
    for name, saved in state["learners"].items():
        learner = run.context.learners[name]
        if changed := learner.changed_options(saved):
            run.session.say(
                f"{name}: {'; '.join(changed)}. The checkpoint's is used, so that the run ends as it would have ended; "
                "another value is another run, in another directory"
            )
        differences += [f"{name}: {text}" for text in learner.changed_settings(saved)]
        learner.load_training_state(saved)
    run.context.advance(run.cursor.step)
    run.logbook.load_state_dict(state["logbook"], marks)
    run.best = state["best"]
    run.state.clear()
    run.state.update(from_tree(state["user"]))
    run.session.restore_random(state["random"], state["random_at_epoch"])
    return differences


def _check_learners(run: "Run", saved: dict[str, Any]) -> None:
    learners = run.context.learners
    for name in saved:
        if name not in learners:
            raise CheckpointError(
                f"The checkpoint holds the learner {name!r}, which this run does not make. {nearest(name, learners)}"
            )
    for name, learner in learners.items():
        if name not in saved:
            raise CheckpointError(
                f"The learner {name!r} is not in the checkpoint, so it would start afresh. {nearest(name, saved)}"
            )
        learner.check_training_state(saved[name])


def random_state(device: torch.device) -> dict[str, Any]:
    """Return the state of all generators a loop can draw from."""
    python, (kind, keys, *rest) = host_streams()
    state = {
        "python": to_tree(python),
        "numpy": to_tree([kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest]),
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Put all generators where they were; one that can't be is an error, since the run would go another way."""
    kind, keys, *rest = from_tree(state["numpy"])
    set_host_streams((from_tree(state["python"]), (kind, keys.numpy().astype(np.uint32), *rest)))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
