# SPDX-License-Identifier: Apache-2.0
"""Optimizers of other libraries: their state comes back as it was, in the dtypes that it had."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import truestep as ts


class SmallMoments(torch.optim.Optimizer):
    """Momentum in another dtype than the parameter's; torch's own loading would cast it to the parameter's."""

    def __init__(self, params, lr=0.1, dtype=torch.int8):
        super().__init__(params, {"lr": lr})
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["moment"], state["scale"] = torch.zeros_like(p, dtype=self.dtype), torch.ones(())
                moment = 0.9 * state["moment"].float() * state["scale"] + p.grad
                state["scale"] = moment.abs().max().clamp(min=1e-9) / 127
                state["moment"] = (moment / state["scale"]).round().to(state["moment"].dtype)
                p -= group["lr"] * state["moment"].float() * state["scale"]


def train(directory, dtype, stop=None):
    torch.manual_seed(0)
    run = ts.Run(directory, seed=0, progress=False)
    net = run.learner(nn.Linear(4, 3), lambda p: SmallMoments(p, dtype=dtype))
    data = run.data((torch.randn(64, 4), torch.arange(64) % 3), batch_size=8, shuffle=True)
    for _epoch in run.epochs(2):
        for batch in run.batches(data):
            net.update(lambda b: F.cross_entropy(net(b[0]), b[1], reduction="none"), batch)
            if run.step == stop:
                run.close()
                return net
    return net


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float64], ids=str)
def test_a_state_in_another_dtype_than_its_parameter_resumes_with_the_same_bits(tmp_path, dtype):
    whole = train(tmp_path / "whole", dtype)
    train(tmp_path / "stopped", dtype, stop=5)
    resumed = train(tmp_path / "stopped", dtype)
    assert torch.equal(whole.module.weight, resumed.module.weight)
    moments = [each["moment"] for net in (whole, resumed) for each in net.optimizers[0].state.values()]
    assert {each.dtype for each in moments} == {dtype}
