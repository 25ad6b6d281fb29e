# SPDX-License-Identifier: Apache-2.0
"""compile=True: one graph, ragged sizes, the eager result to rounding, and what torch can't compile refused."""

import functools
import gc
import json
import shutil
import weakref

import pytest
import torch
from support import warm

from truestep.engine import compiling

# In a process of its own: torch's compiler keeps threads, environment variables and caches.
PROGRAM = """
import functools, json, sys, warnings
import torch
import torch._dynamo
from torch import nn
from truestep.engine.shared_context import LearnerContext
from truestep.engine.learner import Learner, LearnerOptions
from truestep.engine.loss_results import weighted
from truestep.core.errors import OptionError

warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.compile = functools.partial(torch.compile, backend=sys.argv[1])

def new(compile):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    context = LearnerContext(torch.device("cpu"))
    return Learner(module, lambda p: torch.optim.SGD(p, lr=0.1), LearnerOptions(name="net", compile=compile), context)

def loss_of(net):
    return lambda x: weighted(net(x).squeeze(1).square(), x[:, 0].abs(), size=x[:, 1])

compiled, eager = new(True), new(False)
first, second = loss_of(compiled), loss_of(eager)
losses = []
for size in (8, 5, 12, 3):
    data = torch.randn(size, 4, generator=torch.Generator().manual_seed(size))
    losses.append([float(net.update(f, data, micro_batch=6).loss) for net, f in ((compiled, first), (eager, second))])
counters = torch._dynamo.utils.counters
found = {
    "losses": losses,
    "apart": max(float((a - b).detach().abs().max()) for a, b in zip(compiled.parameters(), eager.parameters())),
    "graphs": counters["stats"]["unique_graphs"],
    "breaks": dict(counters["graph_break"]),
}

def refusal(loss):
    before = [p.detach().clone() for p in compiled.parameters()]
    try:
        compiled.update(loss, torch.randn(4, 4))
    except OptionError as error:
        same = all(map(torch.equal, before, compiled.parameters()))
        return [str(error), same and all(p.grad is None for p in compiled.parameters())]

def penalty(x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(compiled(x).sum(), x, create_graph=True)[0].square().sum(1)

def branch(x):
    values = compiled(x).squeeze(1)
    return values * 2 if float(values.sum()) > 0 else values

found["penalty"], found["branch"] = refusal(penalty), refusal(branch)
print(json.dumps(found))
"""


COMPILER = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")),
    reason="torch.compile needs a C++ compiler, and there is none",
)


# traced and differentiated alike; the C++ of torch's own backend takes half a minute to compile
@pytest.mark.parametrize(
    "backend", ["aot_eager", pytest.param("inductor", marks=[pytest.mark.slow, COMPILER])]
)
def test_one_graph_for_all_sizes_the_eager_result_and_clear_refusals(backend):
    done = warm.run("-c", PROGRAM, backend)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    for ours, theirs in found["losses"]:
        assert theirs == pytest.approx(ours, rel=1e-4)
    assert found["apart"] < 1e-5
    assert found["graphs"] <= 3  # the first size, then any
    assert found["breaks"] == {}
    message, unchanged = found["penalty"]
    assert ("differentiates a gradient" in message, "compile=False" in message, unchanged) == (
        True,
        True,
        True,
    )
    message, unchanged = found["branch"]
    assert ("could not turn this loss into one graph" in message, unchanged) == (True, True)


def test_a_loss_that_is_defined_anew_for_each_batch_keeps_no_batch_alive(monkeypatch):
    def compile_(function, fullgraph):  # as torch's, it holds what it compiled
        return functools.wraps(function)(functools.partial(function))

    monkeypatch.setattr(torch, "compile", compile_)
    compiler, batches = compiling.LossCompiler(), []

    def step(batch):
        compiler.call(lambda _: batch.sum(), batch)
        batches.append(weakref.ref(batch))

    for _ in range(compiling.MOST_KEPT + 3):
        step(torch.ones(2))
    gc.collect()
    assert [batch() is None for batch in batches] == [True] * 3 + [False] * compiling.MOST_KEPT
