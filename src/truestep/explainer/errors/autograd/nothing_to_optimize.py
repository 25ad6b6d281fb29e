# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.run_sentences import num_parameters_if_all_frozen, running_models


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

    Cases:
        otherwise: `{owner}.{layers}` is a plain {plain} of layers, whose parameters nobody sees.
            Fix: write self.{layers} = {kind}(...).
        otherwise: all {num} parameters of `{owner}` are frozen. Fix: unfreeze what is to be trained.
    """

    messages = (
        r"optimizer got an empty parameter list",
        r"DistributedDataParallel is not needed when a module doesn't have any parameters that require a gradient",
    )
    checks = ("PARAM001", "PARAM014")

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        for owner, model in running_models(crash):
            for name, value in vars(model).items():
                if type(value) in (list, dict) and _has_layers(value):
                    kind = "nn.ModuleList" if type(value) is list else "nn.ModuleDict"
                    return {"owner": owner, "layers": name, "plain": type(value).__name__, "kind": kind}
            if num := num_parameters_if_all_frozen(model):
                return {"owner": owner, "num": str(num)}
        return {}


def _has_layers(value: object) -> bool:
    from truestep.explainer.values import is_layer_at_crash

    items = list(value.values()) if isinstance(value, dict) else list(value)  # type: ignore[call-overload]
    return any(is_layer_at_crash(item) for item in items)
