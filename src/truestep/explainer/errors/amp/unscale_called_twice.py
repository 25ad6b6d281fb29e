# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class UnscaleCalledTwice(Explainer):
    """A scaler is asked twice to unscale the same gradients, or after its step.

    Means: unscale_ comes once between two calls of scaler.update(), before scaler.step().

    Raises:
        weights = torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.SGD([weights], lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(weights.sum()).backward()
        scaler.unscale_(optimizer)
        scaler.unscale_(optimizer)

    Works:
        weights = torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.SGD([weights], lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(weights.sum()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()

    Fix: in each step write scale(loss).backward(), unscale_(optimizer), clip, step(optimizer), update(), in this order and
    once each; while accumulating, unscale_ at the last micro-batch alone.

    Cases:
        `step() has`: step ran twice without scaler.update() between.
            Fix: call scaler.update() after each step.
        otherwise: scaler.update() was not called since the last unscale_ (it may stand in a branch that did not run).
    """

    messages = (
        r"unscale_\(\) (?:has already been called on this optimizer since the last update\(\)|is being called after step\(\))",
        r"step\(\) has already been called since the last update\(\)",
    )
