# SPDX-License-Identifier: Apache-2.0
"""What a program does to the objects of a training, and by which events and names it is recognised.

A check that says that one of these does not happen names it in `never`.
"""

from dataclasses import dataclass

_OF_GRADIENTS = frozenset(("optimizer", "module", "ddp", None))
_OF_MODELS = frozenset(("module", "ddp", "lightning module"))


@dataclass(frozen=True)
class Action:
    """Something that happens in a training, in words, and what does it."""

    words: str  # "clear the gradients"
    kinds: frozenset[str]  # the events of the protocol that are it; none: its names alone tell it
    names: frozenset[str]  # the methods and functions that do it, by the last part of their names
    receivers: frozenset[str | None] | None = None  # the kinds of objects whose methods these are; None: any


def _make_action(
    words: str, kinds: str, names: str, receivers: frozenset[str | None] | None = None
) -> Action:
    return Action(words, frozenset(kinds.split()), frozenset(names.split()), receivers)


CLEAR = _make_action("clear the gradients", "zero_grad", "zero_grad", _OF_GRADIENTS)
STEP = _make_action(
    "step the optimizer", "step scaler_step update learn", "step", frozenset(("optimizer", "scaler"))
)
SCHEDULE = _make_action("step the schedule", "schedule", "step", frozenset(("scheduler",)))
BACKWARD = _make_action("compute the gradients", "backward grad", "backward manual_backward")
EVALUATE = _make_action("call eval()", "eval", "eval", _OF_MODELS)
TRAIN = _make_action("call train()", "train", "train", _OF_MODELS)
UNSCALE = _make_action("unscale the gradients", "unscale", "unscale_")
SET_EPOCH = _make_action("call set_epoch()", "set_epoch", "set_epoch")
LEAVE_GRADIENTS_OUT = _make_action("switch gradients off", "", "no_grad inference_mode set_grad_enabled")
SCALE = _make_action("scale the loss", "", "GradScaler scale")
FOLLOW = _make_action("update the copy", "", "load_state_dict copy_ lerp_ update_parameters _foreach_lerp_")
REMOVE_HOOK = _make_action("remove the hook", "", "remove")
SAVE_STATE = _make_action("save the state", "", "state_dict")
LOAD_STATE = _make_action("load the state", "", "load_state_dict")
SPLIT_WORKERS = _make_action("split the data among the workers", "", "get_worker_info")
ASK_PROVIDERS = _make_action("look at the providers", "", "get_providers")
ACCUMULATE = _make_action("enter accumulate()", "", "accumulate")
UPDATE_METRIC = _make_action("update the metric", "", "update")
