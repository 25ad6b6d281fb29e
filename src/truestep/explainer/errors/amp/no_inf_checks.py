# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.run_sentences import running_models
from truestep.explainer.values import torch_if_imported


class NoInfChecks(Explainer):
    """scaler.step finds no gradients in its optimizer.

    Means: the scaler looks at the gradients of the optimizer's parameters, and none of them has one.

    Raises:
        weights = torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.SGD([weights], lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(torch.ones(1))
        scaler.step(optimizer)

    Works:
        weights = torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.SGD([weights], lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(weights.sum()).backward()
        scaler.step(optimizer)

    Fix: call scaler.scale(loss).backward() before scaler.step(optimizer) in every branch, without zero_grad between; make the
    optimizer from the parameters that the loss uses, after the model is complete.

    Cases:
        `foreign=`: none of the {num} parameters of `{name}` has a gradient ({place}).
            Fix: the optimizer holds no parameter of the models here: it was made before they were replaced. Make it last.
        otherwise: none of the {num} parameters of `{name}` has a gradient ({place}).
    """

    messages = (r"No inf checks were recorded for this optimizer",)
    checks = ("GRAD004", "PARAM005", "PARAM014")
    not_in_a_log = "which parameters have no gradient"

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        torch = torch_if_imported()
        for frame, name, value in crash.users_locals():
            if torch is None or not isinstance(value, torch.optim.Optimizer):
                continue
            held = [each for group in value.param_groups for each in group["params"]]
            if held and all(each.grad is None for each in held):
                known = {id(each) for _, model in running_models(crash) for each in model.parameters()}
                foreign = known and not known & {id(each) for each in held}
                facts = {"num": str(len(held)), "name": name, "place": frame.place}
                return facts | ({"foreign": "yes"} if foreign else {})
        return {}
