# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Crash, Explainer, Match
from truestep.explainer.run_sentences import running_models


class HalfGradientsUnscaled(Explainer):
    """A scaler meets float16 gradients.

    Means: mixed precision keeps weights and gradients in float32 and computes in float16; here the weights are float16.

    Raises:
        weights = torch.zeros(1, dtype=torch.float16, requires_grad=True)
        optimizer = torch.optim.SGD([weights], lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(weights.sum()).backward()
        scaler.unscale_(optimizer)

    Works:
        weights = torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.SGD([weights], lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(weights.sum()).backward()
        scaler.unscale_(optimizer)

    Fix: take .half() and torch_dtype=torch.float16 away from what is trained (cast trainable adapters to float32), and let
    torch.autocast choose; or train in bfloat16 without a scaler.

    Cases:
        otherwise: {num} trainable parameters of `{owner}` are float16 (first: {first}).
    """

    messages = (r"Attempting to unscale FP16 gradients",)
    checks = ("AMP007",)

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        for owner, model in running_models(crash):
            trained = [(name, each.dtype) for name, each in model.named_parameters() if each.requires_grad]
            if half := [name for name, dtype in trained if str(dtype) == "torch.float16"]:
                return {"num": str(len(half)), "owner": owner, "first": half[0]}
        return {}
