# SPDX-License-Identifier: Apache-2.0
"""NothingToOptimize."""

from truestep.explainer.evidence import running_models
from truestep.explainer.explainer import Cause, Crash, Explainer, Match
from truestep.explainer.values import attribute_at_crash


class NothingToOptimize(Explainer):
    """An optimizer is made without parameters.

    Means: the model registers none: its layers stand in a plain list or dict, or are made later, or all were filtered out.

    Raises:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = [nn.Linear(2, 2)]

        model = Net()
        torch.optim.SGD(model.parameters(), lr=0.1)

    Works:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([nn.Linear(2, 2)])

        model = Net()
        torch.optim.SGD(model.parameters(), lr=0.1)

    Fix: put layers into nn.ModuleList or nn.ModuleDict, tensors that train into nn.Parameter; call list(model.parameters())
    anew for each use, as a generator is empty after the first.
    """

    messages = (
        r"optimizer got an empty parameter list",
        r"DistributedDataParallel is not needed when a module doesn't have any parameters that require a gradient",
    )
    checks = ("PARAM001", "PARAM003", "PARAM014")

    def cause(self, crash: Crash, match: Match) -> Cause | None:
        for owner, model in running_models(crash):
            lists = [
                name
                for name, value in vars(model).items()
                if type(value) in (list, dict) and _has_layers(value)
            ]
            if lists:
                kind = (
                    "nn.ModuleList"
                    if type(attribute_at_crash(model, lists[0])[1]) is list
                    else "nn.ModuleDict"
                )
                return Cause(
                    f"`{owner}.{lists[0]}` is a plain {type(vars(model)[lists[0]]).__name__} of layers, whose "
                    f"parameters nobody sees.",
                    f"write self.{lists[0]} = {kind}(...).",
                )
            parameters = list(model.parameters())
            if parameters and not any(each.requires_grad for each in parameters):
                return Cause(
                    f"all {len(parameters)} parameters of `{owner}` are frozen.",
                    "unfreeze what is to be trained.",
                )
        return None


def _has_layers(value: object) -> bool:
    from truestep.explainer.values import is_layer_at_crash

    items = list(value.values()) if isinstance(value, dict) else list(value)  # type: ignore[call-overload]
    return any(is_layer_at_crash(item) for item in items)
