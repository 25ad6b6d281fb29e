# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint keeps of the code's settings, without their secrets; what else is in it is kept as it is."""

import json
from typing import Any

from truestep.engine.state import learner_settings
from truestep.run.secret_hashes import RunSecretsHider
from truestep.run.state import RunState

Tree = dict[str, Any]


def learner_state_without_secrets(state: Tree, secrets: RunSecretsHider) -> Tree:
    """Return a learner's state with its settings as they are kept."""
    if "settings" not in state:  # of a rank that has a part of the weights alone
        return state
    return state | {
        "settings": _encode_layers_setting(secrets.hidden(_decode_layers_setting(state["settings"])))
    }


def cursor_state_without_secrets(state: Tree, secrets: RunSecretsHider) -> Tree:
    """Return the cursor's state with what describes its data as it is kept: an address may have a login in it."""
    streams = {
        name: stream | {"fingerprint": secrets.hidden(stream["fingerprint"])}
        for name, stream in state["streams"].items()
    }
    return state | {"streams": streams}


def restore_secrets_from_code(run: RunState, state: Tree) -> Tree:
    """Return a saved state with the code's own settings wherever those are what is hidden in it."""
    learners = {name: old | _revealed_settings(run, name, old) for name, old in state["learners"].items()}
    now = run.cursor.state_dict()["streams"]
    streams = {
        name: saved
        | {"fingerprint": run.secrets.reveal_hidden_values(saved["fingerprint"], now[name]["fingerprint"])}
        if name in now and "fingerprint" in saved
        else saved
        for name, saved in state["cursor"]["streams"].items()
    }
    return state | {"learners": learners, "cursor": state["cursor"] | {"streams": streams}}


def _revealed_settings(run: RunState, name: str, saved: Tree) -> Tree:
    learner = run.context.learners.get(name)
    if learner is None or "settings" not in saved:
        return {}
    now = _decode_layers_setting(learner_settings(learner) | learner.switches.state())
    return {
        "settings": _encode_layers_setting(
            run.secrets.reveal_hidden_values(_decode_layers_setting(saved["settings"]), now)
        )
    }


def _decode_layers_setting(settings: Tree) -> Tree:
    return settings | {"layers": json.loads(settings["layers"])} if "layers" in settings else settings


def _encode_layers_setting(settings: Tree) -> Tree:
    return settings | {"layers": json.dumps(settings["layers"])} if "layers" in settings else settings
