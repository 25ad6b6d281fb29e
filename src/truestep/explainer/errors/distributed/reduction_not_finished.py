# SPDX-License-Identifier: Apache-2.0
import re
from typing import Any

from truestep.core.text_formatting import first_few
from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.values import is_layer_at_crash


class ReductionNotFinished(Explainer):
    """Under DDP, parameters took no part in the last step's loss.

    Means: DDP waits for a gradient of every parameter; one that the loss does not use leaves it waiting.

    Raises:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.used, self.spare = nn.Linear(2, 2), nn.Linear(2, 2)

            def forward(self, x):
                return self.used(x)

        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            model = DDP(Net())
            for step in range(2):
                model(torch.zeros(1, 2)).sum().backward()
        finally:
            dist.destroy_process_group()

    Works:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            model = DDP(nn.Linear(2, 2))
            for step in range(2):
                model(torch.zeros(1, 2)).sum().backward()
        finally:
            dist.destroy_process_group()

    Fix: delete layers that are never used, or freeze them before DDP (requires_grad_(False)); if which are used changes from
    step to step, pass find_unused_parameters=True. Truestep's engine needs neither.

    Cases:
        otherwise: without a gradient: {names}.
        otherwise: {num} parameters, counted from 0: {indices}.
    """

    messages = (r"Expected to have finished reduction in the prior iteration before starting a new one",)
    checks = ("PARAM021",)
    not_in_a_log = "the parameters by name, unless TORCH_DISTRIBUTED_DEBUG=DETAIL was set"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        model = _module_inside_ddp(crash)
        indices = re.search(r"indices which did not receive grad for rank \d+: ([\d ]+)", crash.message)
        named = re.search(r"Parameters which did not receive grad for rank \d+: ([^\n]+)", crash.message)
        names = named[1].split(", ") if named else []
        if indices and model is not None and not named:
            own = [name for name, each in model.named_parameters() if each.requires_grad]
            names = [own[int(index)] for index in indices[1].split() if int(index) < len(own)]
        if named or (indices and model is not None):
            return {"names": first_few(names, 4)}
        return {"num": str(len(indices[1].split())), "indices": indices[1].strip()} if indices else {}


def _module_inside_ddp(crash: Crash) -> Any:
    for frame in crash.frames:
        wrapper: Any = frame.locals().get("self")
        if is_layer_at_crash(wrapper) and type(wrapper).__name__ == "DistributedDataParallel":
            return wrapper.module
    return None
