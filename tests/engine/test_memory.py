# SPDX-License-Identifier: Apache-2.0
"""micro_batch="auto" under a real limit: the batch is tried again smaller, and nothing shows that it was."""

import json
import resource
import sys

import pytest
import torch
from support import warm
from torch import nn

import truestep as ts
from truestep.engine.out_of_memory import is_out_of_memory_error

# Trains one step with what a failed attempt could change: buffers, spectral vectors, all three random streams.
PROGRAM = """
import json, random, resource, sys, warnings
import numpy as np, torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from truestep.engine.shared_context import LearnerContext
from truestep.engine.learner import Learner, LearnerOptions
from truestep.core.errors import TruestepError

torch.set_num_threads(1)
warnings.simplefilter("ignore")
limit_mib, micro_batch, kind = json.loads(sys.argv[1])
torch.manual_seed(0)
random.seed(0)
np.random.seed(0)
module = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.Dropout(0.3), spectral_norm(nn.Linear(64, 8)))
context = LearnerContext(torch.device("cpu"))
learner = Learner(module, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), LearnerOptions(name="net"), context)
other = Learner(nn.Sequential(nn.BatchNorm1d(8)), lambda p: torch.optim.SGD(p, lr=0.1), LearnerOptions(name="other"), context)
big = (64 if kind == "huge" else 0.25) * 2**20  # floats an example: 256 or 1 MiB each time they are written down
if kind == "huge":
    module[1].eval(), other.module.eval()  # they refuse to normalise a single example
sizes = []

def loss(x):
    sizes.append(len(x))
    noise = random.random() + np.random.rand()
    values = other(learner(x)).sum(1) * noise * torch.rand(len(x))
    rows = values[:, None].expand(-1, int(big))
    for _ in range(4):
        rows = rows.sin()
    if kind == "scalar":
        return rows.mean()
    return rows.mean(1)

for step in range(3):  # what is allocated once
    learner.update(lambda x: learner(x).sum(1), torch.randn(24, 8, generator=torch.Generator().manual_seed(step)))
if limit_mib:
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + limit_mib * 2**20,) * 2)
error = None
try:
    for step in range(3, 4):
        context.advance(step)
        data = torch.randn(24, 8, generator=torch.Generator().manual_seed(step))
        update = learner.update(loss, data, micro_batch=micro_batch)
except TruestepError as caught:
    error = [str(caught), getattr(caught, "__notes__", [])]
digest = [t.double().sum().item().hex() for t in learner.module.state_dict().values()]
digest += [t.double().sum().item().hex() for t in other.module.state_dict().values()]
digest += [p.detach().numpy().tobytes().hex()[:64] for p in learner.module.parameters()]
streams = [random.random(), float(np.random.rand()), float(torch.rand(()))]
print(json.dumps({"sizes": sizes, "digest": digest, "streams": streams, "error": error,
                  "in_use": learner._parts.counters.micro_batch_in_use, "choices": [list(c) for c in context.choices]}))
"""


def train(limit_mib, micro_batch, kind="vector"):
    done = warm.run("-c", PROGRAM, json.dumps([limit_mib, micro_batch, kind]))
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


limited = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(resource, "RLIMIT_AS"),
    reason="needs RLIMIT_AS as Linux has it",
)


@limited
def test_the_same_batch_is_tried_again_smaller_and_ends_at_the_same_bits():
    automatic = train(100, "auto")
    assert automatic["error"] is None
    size = automatic["in_use"]
    assert size in (12, 6, 3, 2)
    # a later part of an attempt may be the one that fails; the last attempt is whole
    assert automatic["sizes"][0] == 24
    assert automatic["sizes"][-24 // size :] == [size] * (24 // size)
    choice = next(choice for choice in automatic["choices"] if choice[0] == "micro_batch of net")
    assert (choice[1], "did not fit" in choice[2]) == (str(size), True)
    explicit = train(None, size)
    assert explicit["sizes"] == [size] * (24 // size)
    assert (explicit["digest"], explicit["streams"]) == (automatic["digest"], automatic["streams"])


@limited
def test_what_can_not_be_split_says_that_memory_ran_out():
    message, _ = train(60, "auto", "scalar")["error"]
    assert "returned a scalar, and this batch is split" in message


@limited
def test_one_example_that_does_not_fit_ends_with_advice():
    message, _ = train(60, "auto", "huge")["error"]
    assert "not enough memory for a single example" in message


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("shapes (2, 3) and (4, 5) can't be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_allocation_failures_are_told_from_other_errors(error, expected):
    assert expected is is_out_of_memory_error(error)


def test_other_errors_go_through_and_are_not_tried_again(make_learner):
    learner = make_learner(nn.Linear(2, 1), micro_batch="auto")
    calls = []

    def loss(x):
        calls.append(len(x))
        raise RuntimeError("a bug of its own")

    with pytest.raises(RuntimeError, match="a bug of its own"):
        learner.update(loss, torch.ones(4, 2))
    assert calls == [4]


@pytest.mark.parametrize("micro_batch", [0, -1, "automatic", [2, 0], [2.5], 1.5, ["a"]])
def test_micro_batches_that_mean_nothing_are_refused(make_learner, micro_batch):
    with pytest.raises(ts.OptionError, match=r"micro_batch=.*give the largest number"):
        make_learner(nn.Linear(2, 1), micro_batch=micro_batch)
    learner = make_learner(nn.Linear(2, 1))
    with pytest.raises(ts.OptionError, match=r"micro_batch=.*give the largest number"):
        learner.update(lambda x: learner(x).squeeze(1), torch.ones(4, 2), micro_batch=micro_batch)


def test_a_loss_of_the_whole_batch_is_never_split(make_learner):
    learner = make_learner(nn.Linear(2, 3), micro_batch=2)
    sizes = []
    loss = lambda x: (sizes.append(len(x)), learner(x).logsumexp(0).sum())[1]
    learner.update(loss, torch.ones(5, 2), decomposable=False)
    assert sizes == [5]
    with pytest.raises(ts.OptionError, match="decomposable=False says"):
        learner.update(loss, torch.ones(5, 2), decomposable=False, micro_batch=2)
    with pytest.raises(ts.LossError, match="returned a scalar, and this batch is split"):
        learner.update(loss, torch.ones(5, 2))
