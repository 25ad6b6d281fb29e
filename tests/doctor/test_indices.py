# SPDX-License-Identifier: Apache-2.0
"""Values with a graph that are picked by what is no tensor: NumPy arrays, lists, ranges. The watch goes on."""

import warnings

import pytest

from tests.support.told import IMPORTS
from truestep.doctor.runtime.watch import Watch, WatchOptions

INDICES = {
    "of numpy": "np.random.default_rng(0).permutation(16)",
    "of numpy, half": "np.arange(0, 16, 2)",
    "small integers of numpy": "np.arange(16, dtype=np.int32)",
    "one of numpy": "np.array([3])",
    "one number of numpy": "np.int64(3)",
    "no dimension": "np.array(3)",
    "a mask of numpy": "np.arange(16) % 2 == 0",
    "a mask that picks one": "np.arange(16) < 1",
    "list": "list(range(16))",
    "list of one": "[3]",
    "list of booleans": "[True, False] * 8",
    "range": "range(16)",
    "short range": "range(2, 9, 3)",
    "tuple": "(list(range(16)),)",
    "tuple of numpy": "(np.arange(16),)",
    "ellipsis": "...",
    "none": "None",
    "slice": "slice(0, 16, 2)",
    "tensor": "torch.arange(16)",
    "a mask": "torch.arange(16) % 2 == 0",
}
USES = {
    "difference": "(net(X)[:, 0][idx] - old[idx]).square().mean()",
    "ratio": "((net(X)[:, 0][idx] - old[idx]).exp() * Y[idx]).mean()",
    "sum of two": "net(X)[:, 0][idx].mean() + 0.1 * old[idx].square().sum()",
    "weighed by numpy": "(net(X)[:, 0] * torch.from_numpy(W)).sum() + old[idx].mean()",
}
PROGRAM = """
import numpy as np
torch.manual_seed(0)
net = nn.Linear(4, 2)
opt = torch.optim.Adam(net.parameters())
X, Y, W = torch.randn(16, 4), torch.randn(16), np.linspace(0, 1, 16, dtype=np.float32)
for _ in range(3):
    old = net(X)[:, 0].clone()
    idx = {index}
    loss = {use}
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("index", INDICES)
def test_the_watch_goes_on_whatever_picks_the_values(index, use):
    text = IMPORTS + PROGRAM.format(index=INDICES[index], use=USES[use])
    with Watch(WatchOptions(probe=False)) as watch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(text, "<program>", "exec"), {"__name__": "__example__"})
    assert (watch.failures, watch.history.num_steps) == ([], 3)
