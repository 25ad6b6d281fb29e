# SPDX-License-Identifier: Apache-2.0
"""An example's output that depends on another example."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import BUG
from truestep.doctor.probe import Probe
from truestep.doctor.watcher import Forward, Saw, Sights
from truestep.doctor.watching.looking import first_tensor

if TYPE_CHECKING:
    pass


class ExamplesMixed(Probe):
    """In eval mode, the output for one example depends on the other examples of the batch.

    Why: a view or softmax over the wrong dimension mixes them: what is learned depends on who else is in
    the batch.

    Bad:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 3)

            def forward(self, x):
                return self.layer(x).softmax(0)

        F.mse_loss(Net()(x), torch.rand(8, 3)).backward()  # here

    Good:
        F.cross_entropy(net(x), y).backward()

    Fix: look for view/reshape in place of permute, softmax or norms over dimension 0, batch_first.
    """

    code = "DATA015"

    def try_out(self, forward: Forward) -> Sights:
        """Ask for the gradient of the first example's output by the last example's input."""
        import torch

        from truestep.doctor.watching.trial import Trial

        given = first_tensor(forward.args)
        if given is None or not given.is_floating_point() or given.dim() < 2 or given.shape[0] < 2:
            self.cannot_run = "the model's first input is no batch of floating-point numbers"
            return
        with Trial(forward) as trial, torch.enable_grad():
            probe = given.detach().clone().requires_grad_()
            output = first_tensor(trial.apply(probe))
            if (
                output is None
                or output.dim() < 2
                or output.shape[0] != given.shape[0]
                or not output.requires_grad
            ):
                self.cannot_run = "the model's output is no batch of as many examples as its input"
                return
            (gradient,) = torch.autograd.grad(output[0].float().square().sum(), probe, allow_unused=True)
        if gradient is not None and bool(gradient[1:].abs().max() > 0):
            share = float(gradient[1:].abs().max() / gradient.abs().max())
            text = "The output for the first example depends on the others of its batch."
            yield Saw(
                forward.place,
                text,
                BUG,
                {"relative_influence": share, "model": type(forward.module).__name__},
            )
