# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint keeps of the code's settings, without their secrets; what else is in it is kept as it is."""

import json
from typing import Any

from truestep.engine.state import learner_settings
from truestep.run.secrets import RunSecrets
from truestep.run.state import RunState

Tree = dict[str, Any]


def without_secrets_of_learner(state: Tree, secrets: RunSecrets) -> Tree:
    """Return a learner's state with its settings as they are kept."""
    if "settings" not in state:  # of a rank that has a part of the weights alone
        return state
    return state | {"settings": _with_layers_as_text(secrets.hidden(_with_layers(state["settings"])))}


def without_secrets_of_cursor(state: Tree, secrets: RunSecrets) -> Tree:
    """Return the cursor's state with what describes its data as it is kept: an address may have a login in it."""
    streams = {
        name: stream | {"fingerprint": secrets.hidden(stream["fingerprint"])}
        for name, stream in state["streams"].items()
    }
    return state | {"streams": streams}


def with_secrets_of_code(run: RunState, state: Tree) -> Tree:
    """Return a saved state with the code's own settings wherever those are what is hidden in it."""
    learners = {name: old | _revealed_settings(run, name, old) for name, old in state["learners"].items()}
    now = run.cursor.state_dict()["streams"]
    streams = {
        name: saved | {"fingerprint": run.secrets.revealed(saved["fingerprint"], now[name]["fingerprint"])}
        if name in now and "fingerprint" in saved
        else saved
        for name, saved in state["cursor"]["streams"].items()
    }
    return state | {"learners": learners, "cursor": state["cursor"] | {"streams": streams}}


def _revealed_settings(run: RunState, name: str, saved: Tree) -> Tree:
    learner = run.context.learners.get(name)
    if learner is None or "settings" not in saved:
        return {}
    now = _with_layers(learner_settings(learner) | learner.switches.state())
    return {"settings": _with_layers_as_text(run.secrets.revealed(_with_layers(saved["settings"]), now))}


def _with_layers(settings: Tree) -> Tree:
    return settings | {"layers": json.loads(settings["layers"])} if "layers" in settings else settings


def _with_layers_as_text(settings: Tree) -> Tree:
    return settings | {"layers": json.dumps(settings["layers"])} if "layers" in settings else settings
