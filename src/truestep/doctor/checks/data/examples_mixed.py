# SPDX-License-Identifier: Apache-2.0
"""An example's output that depends on another example."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truestep.doctor.check import RISK
from truestep.doctor.probe import Probe
from truestep.doctor.runtime.history import Forward
from truestep.doctor.runtime.looking import first_tensor
from truestep.doctor.watcher import Observation, Observations

if TYPE_CHECKING:
    import torch


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

    def try_out(self, forward: Forward) -> Observations:
        """Ask for the gradient of the first example's output by the other examples' inputs."""
        given = first_tensor(forward.args)
        self.cannot_run = _obstacle(forward, given)
        if self.cannot_run is None and given is not None:
            gradient = self._gradient(forward, given)
            if gradient is not None and bool(gradient[1:].abs().max() > 0):
                share = float(gradient[1:].abs().max() / gradient.abs().max())
                evidence = {"relative_influence": share, "model": forward.called}
                text = "The output for the first example depends on the others of its batch."
                yield Observation(forward.place, text, RISK, evidence)

    def _gradient(self, forward: Forward, given: torch.Tensor) -> torch.Tensor | None:
        import torch

        from truestep.doctor.runtime.model_copy import ModelCopy

        with ModelCopy(forward) as trial, torch.enable_grad():
            probe = given.detach().clone().requires_grad_()
            output = first_tensor(trial.apply(probe))
            if output is None or output.dim() != 2 or len(output) != len(given) or not output.requires_grad:
                self.cannot_run = "which axis of the model's output is the batch can't be told"
                return None
            return torch.autograd.grad(output[0].float().square().sum(), probe, allow_unused=True)[0]


def _obstacle(forward: Forward, given: torch.Tensor | None) -> str | None:
    """Several inputs may mix examples by right: a graph's edges do."""
    single = len(forward.args) == 1 and not forward.kwargs
    if not single or given is None or not given.is_floating_point() or given.dim() < 2 or len(given) < 2:
        return "the model's only input is no batch of floating-point numbers"
    return None
