# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from typing import Any

from truestep.explainer.explainer import Crash, Explainer, Match


class OptimizerStateDoesNotFit(Explainer):
    """An optimizer's saved state is of other parameter groups than this optimizer has.

    Means: the state is stored by position: as many groups, and as many parameters in each, as when it was saved.

    Raises:
        net = nn.Linear(2, 2)
        saved = torch.optim.SGD([net.weight], lr=0.1).state_dict()
        torch.optim.SGD(net.parameters(), lr=0.1).load_state_dict(saved)

    Works:
        net = nn.Linear(2, 2)
        saved = torch.optim.SGD(net.parameters(), lr=0.1).state_dict()
        torch.optim.SGD(net.parameters(), lr=0.1).load_state_dict(saved)

    Fix: make model and optimizer as they were when it was saved: the same layers, frozen ones alike, the same groups in the same
    order. For a model that was changed (a new head, another freezing) load the weights alone and start the optimizer anew.

    Cases:
        otherwise: the file has {saved}, the optimizer here {now}.
    """

    messages = (
        r"loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
        r"loaded state dict has a different number of parameter groups",
    )
    not_in_a_log = "how many groups and parameters each of the two has"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        for frame in reversed(crash.frames):
            now, saved = (frame.locals().get(name) for name in ("groups", "saved_groups"))
            if isinstance(now, list | tuple) and isinstance(saved, list | tuple):
                return {"saved": _parameter_group_sizes_text(saved), "now": _parameter_group_sizes_text(now)}
        return {}


def _parameter_group_sizes_text(groups: Sequence[dict[str, Any]]) -> str:
    """Say how many parameters stand in each group."""
    num = [str(len(group["params"])) for group in groups]
    shown = ", ".join(num[:4]) + (", ..." if len(num) > 4 else "")
    return f"{len(num)} group{'s' if len(num) > 1 else ''} (parameters: {shown})"
