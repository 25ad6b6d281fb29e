# SPDX-License-Identifier: Apache-2.0
"""An update that is skipped or raises, or is another learner's, leaves every buffer that a forward moved as it was."""

import math

import pytest
import torch
from torch import nn

import truestep as ts
from truestep.core import buffers as buffers_module
from truestep.core.buffers import MovingBufferSnapshot

DATA = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))


class Statistics(nn.Module):
    """Buffers that move in every way there is."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1)
        self.norm = nn.BatchNorm1d(3)
        self.constant = nn.Buffer(torch.arange(3.0))
        self.in_place = nn.Buffer(torch.zeros(3))
        self.assigned = nn.Buffer(torch.zeros(3))
        self.uncounted = nn.Buffer(torch.zeros(3))
        self.queue = nn.Buffer(torch.zeros(0, 3))
        self.pointer = nn.Buffer(torch.zeros((), dtype=torch.long))
        self.register_buffer("first_seen", None)
        self.fresh = nn.Buffer(torch.zeros(2))
        self.is_late = False

    def forward(self, x):
        mean = x.detach().mean(0)
        with torch.no_grad():
            self.in_place += mean
            self.assigned = self.assigned + mean
            self.uncounted.data.mul_(0.9).add_(mean)
            self.queue = torch.cat([self.queue, x.detach()])[-20:]
            self.pointer += len(x)
            if self.first_seen is None:
                self.first_seen = mean
            if self.is_late:
                self.fresh += 1
        return self.linear(self.norm(x) + self.constant).squeeze(1)


def values(module):
    return {
        name: None if buffer is None else buffer.clone()
        for part, places in ((part, part._buffers) for part in module.modules())
        for name, buffer in ((f"{id(part)}.{name}", buffer) for name, buffer in places.items())
    }


def learner(make_learner, make_context, nonfinite, **options):
    torch.manual_seed(0)
    context = make_context(nonfinite=nonfinite)
    return make_learner(Statistics(), options.pop("optimizer", None), context, **options)


@pytest.mark.parametrize("num_before", [0, 1, 2, 5])
@pytest.mark.parametrize("how", ["skip", "raise", "error", "accumulating", "lbfgs", "fp16-mixed", "empty"])
def test_every_buffer_is_as_it_was(make_learner, make_context, same, how, num_before):
    options = {"precision": "fp16-mixed", "loss_scale": 64.0} if how == "fp16-mixed" else {}
    if how == "lbfgs":
        options["optimizer"] = lambda p: torch.optim.LBFGS(p, max_iter=2, lr=1e-3)
    policy = how if how in ("skip", "raise") else "skip"
    net = learner(make_learner, make_context, policy, **options)
    good = lambda x: ts.weighted(net(x), torch.ones(len(x)))
    for _ in range(num_before):
        net.update(good, DATA)
    net.module.is_late = True
    before = values(net.module)

    def spoilt(x):
        losses = net(x) * (1e30 if how == "fp16-mixed" else math.nan)
        if how == "error":
            raise ZeroDivisionError
        return ts.weighted(net(x) if how == "empty" else losses, torch.full((8,), float(how != "empty")))

    if how == "accumulating":
        with net.accumulating() as update:
            update.backward(spoilt(DATA))
    elif how in ("raise", "error"):
        with pytest.raises((ts.NonFiniteError, ZeroDivisionError)):
            net.update(spoilt, DATA)
    else:
        assert bool(net.update(spoilt, DATA).skipped)
    assert same(before, values(net.module))
    net.update(good, DATA)
    if how != "lbfgs":  # which evaluates several times
        assert int(net.module.pointer) == 8 * (num_before + 1)
        assert int(net.module.fresh[0]) == 1


@pytest.mark.parametrize("num_before", [0, 1, 3])
def test_anothers_update_leaves_them_and_their_graphs(make_learner, make_context, same, num_before):
    net = learner(make_learner, make_context, "raise")
    other = make_learner(nn.Linear(1, 1), context=net._parts.context)
    for _ in range(num_before):
        net.update(net, DATA)
    net.module.is_late = True
    made = net(DATA)
    before = values(net.module)
    tensors = dict(net.module.named_buffers())
    other.update(lambda x: other(net(x)[:, None]).squeeze(1), DATA)
    assert same(before, values(net.module))
    assert all(buffer is tensors[name] for name, buffer in net.module.named_buffers())
    made.sum().backward()  # saved buffers count as unwritten


@pytest.mark.filterwarnings("ignore:The buffers .* move whenever")
def test_memory_that_ran_out_leaves_no_trace_in_buffers(make_learner, make_context):
    net = learner(make_learner, make_context, "raise")
    net.module.norm.eval()
    for number in range(1, 4):

        def loss(x):
            losses = net(x)
            if len(x) == 8:
                raise MemoryError
            return losses

        net._parts.counters.micro_batch_in_use = None
        net.update(loss, DATA, micro_batch="auto")
        assert int(net.module.pointer) == 8 * number
        assert len(net.module.queue) == min(8 * number, 20)


class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Buffer(torch.zeros(1000))
        self.small = nn.Buffer(torch.zeros(3))


def copied(kept):
    return {entry.name: entry.copy is not None for entry in kept._entries}


def test_buffers_that_never_move_are_copied_once(monkeypatch):
    module = Large()
    kept = MovingBufferSnapshot(module)
    kept.keep()
    copies = []
    monkeypatch.setattr(buffers_module, "_copy_buffers", lambda entries, _: copies.append(entries))
    for _ in range(70):
        kept.keep()
    assert copies == []
    module.table.add_(1)
    kept.keep()
    assert [entry.name for entry in copies[0]] == ["table"]


def test_large_buffers_are_copied_from_their_first_move_on(monkeypatch):
    monkeypatch.setattr(buffers_module, "MOST_UNMOVED_BYTES", 100)
    module = Large()
    kept = MovingBufferSnapshot(module)
    kept.keep()
    assert copied(kept) == {"table": False, "small": True}
    module.table.add_(1)
    module.small.add_(1)
    with pytest.warns(UserWarning, match=r"The buffer 'table' \(0\.0 GB\) moved for the first time"):
        kept.restore()
    assert (module.table[0], module.small[0]) == (1, 0)
    kept.keep()
    assert copied(kept) == {"table": True, "small": True}
    module.table.add_(1)
    kept.restore()
    assert module.table[0] == 1


def test_a_layer_that_comes_later_is_found(make_learner, make_context):
    module = nn.Sequential(nn.Linear(2, 2))
    kept = MovingBufferSnapshot(module)
    assert not kept
    kept.keep()
    module.append(nn.BatchNorm1d(2))
    for _ in range(3):
        kept.keep()
    module(torch.randn(4, 2))
    kept.restore()
    assert int(module[1].num_batches_tracked) == 0


@pytest.mark.parametrize("flag", [0.0, 1.0])
@pytest.mark.parametrize("num_before", [1, 2])
def test_a_late_flag_puts_back_what_moved_in_every_way(flag, num_before, same):
    module = Statistics()
    kept = MovingBufferSnapshot(module)
    for _ in range(num_before):
        kept.keep()
        module(DATA)
    kept.keep()
    before = values(module)
    module.is_late = True
    module(DATA)
    after = values(module)
    versions = {name: buffer._version for name, buffer in module.named_buffers()}
    kept.restore_where(torch.tensor(flag))
    assert same(values(module), before if flag else after)
    assert all(
        buffer._version == versions[name] for name, buffer in module.named_buffers() if name == "in_place"
    )


def test_a_tensor_of_the_batch_that_became_a_buffer_is_not_written_into():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Buffer(torch.zeros(2))

        def forward(self, x):
            self.last = x

    module, batch = Keeps(), torch.ones(2)
    kept = MovingBufferSnapshot(module)
    kept.keep()
    module(batch)
    kept.restore_where(torch.tensor(1.0))
    assert torch.equal(batch, torch.ones(2))
    assert torch.equal(module.last, torch.zeros(2))
