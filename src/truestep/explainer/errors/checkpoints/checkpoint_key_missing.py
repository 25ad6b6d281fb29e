# SPDX-License-Identifier: Apache-2.0
import re
from typing import Any

from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.values import is_tensor_at_crash

_USUAL = (
    "state_dict", "model_state_dict", "model_state", "model", "net", "network", "weights", "params",
    "params_ema", "optimizer", "optimizer_state_dict", "optim", "scheduler", "lr_scheduler",
    "scheduler_state_dict", "epoch", "step", "iteration", "ema", "model_ema", "state_dict_ema", "best_acc",
    "best_acc1", "hyper_parameters", "args",
)  # fmt: skip
_LOADING = re.compile(r"checkpoint|ckpt|state_?dict|torch\.load|resume", re.IGNORECASE)
_SHORT = 1000  # characters of a text that is about the error alone


class CheckpointKeyMissing(Explainer):
    """A checkpoint has no entry of the name that is asked for.

    Means: torch.save keeps what it was given: the state dict alone, or a dict whose names whoever saved it chose.

    Raises:
        torch.save(nn.Linear(2, 2).state_dict(), "model.pt")
        checkpoint = torch.load("model.pt")
        weights = checkpoint["model_state_dict"]

    Works:
        torch.save({"model_state_dict": nn.Linear(2, 2).state_dict()}, "model.pt")
        checkpoint = torch.load("model.pt")
        weights = checkpoint["model_state_dict"]

    Fix: look at what is there: print(list(checkpoint)[:10]). Names with dots and tensors behind them are the state dict itself:
    model.load_state_dict(checkpoint). A file of weights alone has no optimizer and no epoch to go on with.

    Cases:
        `tensors=`: `{held}` is the state dict itself: {num} tensors by name.
            Fix: model.load_state_dict({held}).
        otherwise: `{held}` has {num} entries{among}, and no {key}.
    """

    types = ("KeyError",)
    messages = (r"^['\"](?P<key>[\w.]{1,100})['\"]",)
    not_in_a_log = "which entries the checkpoint has"

    @classmethod
    def match(cls, crash: Crash) -> Match | None:
        """Leave the keys of other dicts alone: the name is a checkpoint's, or the failing line speaks of one."""
        found = super().match(crash)
        if found is None or not any(name.endswith("KeyError") for name in crash.type_names):
            return None
        told = crash.user.text if crash.user else crash.context if len(crash.context) < _SHORT else ""
        return found if found["key"] in _USUAL or _LOADING.search(told) else None

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        found = next((each for each in crash.values if issubclass(type(each.value), dict)), None)
        if found is None:
            return {}
        entries: dict[Any, Any] = found.value
        known = [name for name in _USUAL if name in entries]
        facts = {"held": found.name, "num": str(len(entries))}
        facts["among"] = f", among them {', '.join(known[:4])}" if known else ""
        are_tensors = entries and all(is_tensor_at_crash(value) for value in entries.values())
        return facts | ({"tensors": "yes"} if are_tensors else {})
