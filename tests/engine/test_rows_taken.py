# SPDX-License-Identifier: Apache-2.0
"""`batch[0]` of a batch that is one tensor is its first example, and not the first of its parts."""

import itertools
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import truestep as ts
from truestep.core.errors import BatchError

SIZE = 4


class Rows(Dataset[Tensor]):
    """A data set whose samples are tensors."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Tensor:
        return self.rows[number]


SOURCES = {
    "tensor": lambda rows, data: data(rows, batch_size=SIZE),
    "loader": lambda rows, data: data(DataLoader(rows, batch_size=SIZE)),
    "data set": lambda rows, data: data(Rows(rows), batch_size=SIZE),
    "stream": lambda rows, data: data(lambda: iter(rows), batch_size=SIZE),
}
PAIRS = {
    "tuple": lambda rows, data: data((rows, rows), batch_size=SIZE),
    "one in a tuple": lambda rows, data: data((rows,), batch_size=SIZE),
    "data set": lambda rows, data: data(TensorDataset(rows), batch_size=SIZE),
    "loader": lambda rows, data: data(DataLoader(TensorDataset(rows, rows), batch_size=SIZE)),
    "numbers as keys": lambda rows, data: data({0: rows, 1: rows}, batch_size=SIZE),
}


def _first(net: Any, batch: Any) -> Tensor:
    x = batch[0]
    return (net(x) - x).square().mean()


def _as_float(net: Any, batch: Any) -> Tensor:
    x = batch[0].to(net.module.weight.device).float()
    return (net(x) - x).square().mean()


def _last(net: Any, batch: Any) -> Tensor:
    return net(batch[-1]).square().mean(-1)


def _two(net: Any, samples: Any) -> Tensor:
    x, y = samples[0], samples[1]
    return (net(x) - y).square().mean()


def _with_noise(net: Any, batch: Any) -> Tensor:
    noise = torch.zeros(batch.shape[-1], device=batch.device) * len(batch)
    return net(batch[0] + noise).square()


WRONG = (_first, _as_float, _last, _two, _with_noise)


def _examples(net: Any, batch: Any) -> Tensor:
    return net(batch).square().mean(1)


def _anchor(net: Any, batch: Any) -> Tensor:
    return (net(batch) - batch[0]).square().mean(1)


def _one_by_one(net: Any, batch: Any) -> Tensor:
    return torch.stack([net(row).square().mean() for row in batch])


def _by_number(net: Any, batch: Any) -> Tensor:
    return torch.stack([net(batch[number]).square().mean() for number in range(len(batch))])


def _every_row(net: Any, batch: Any) -> Tensor:
    return torch.stack([net(row).square().mean() for row in (batch[0], batch[1], batch[2], batch[3])])


def _of_a_slice(net: Any, batch: Any) -> Tensor:
    return net(batch[0:2]).square().mean()


def _shown(net: Any, batch: Any) -> Tensor:
    str(batch[0])
    return net(batch.float()).square().mean(1)


RIGHT = (_examples, _anchor, _one_by_one, _by_number, _every_row, _of_a_slice, _shown)


def _run(folder: Any, width: int) -> tuple[ts.Run, Any, Tensor]:
    run = ts.Run(folder, quiet=True, progress=False, doctor=False)
    net = run.learner(nn.Linear(width, width), lambda p: torch.optim.SGD(p, lr=0.1))
    return run, net, torch.linspace(0, 1, 2 * SIZE * width).view(-1, width)


# as many features as examples: no shape tells
KINDS = [("tensor", 3), ("tensor", SIZE), ("loader", SIZE), ("data set", 3), ("stream", SIZE)]


@pytest.mark.parametrize(("source", "width"), KINDS)
def test_a_loss_that_reads_single_rows_of_a_tensor_is_refused(source: str, width: int, tmp_path: Any) -> None:
    run, net, rows = _run(tmp_path, width)
    data = SOURCES[source](rows, run.data)
    before = net.module.weight.detach().clone()
    batch = next(iter(run.batches(data)))
    for loss in WRONG:
        with pytest.raises(BatchError, match=r"reads only \w+\[-?\d\].* one tensor of shape \(4, "):
            net.update(partial(loss, net), batch)
        with pytest.raises(BatchError, match="reads only"):
            net.evaluate(partial(loss, net), data)
    assert torch.equal(net.module.weight, before)


@pytest.mark.parametrize(("source", "width"), KINDS)
def test_a_loss_that_reads_rows_beside_the_rest_is_not(source: str, width: int, tmp_path: Any) -> None:
    run, net, rows = _run(tmp_path, width)
    data = SOURCES[source](rows, run.data)
    for batch in run.batches(data):
        for loss in RIGHT:
            net.update(partial(loss, net), batch)


@pytest.mark.parametrize("source", PAIRS)
def test_the_first_part_of_a_batch_of_parts_is_read(source: str, tmp_path: Any) -> None:
    run, net, rows = _run(tmp_path, 3)
    data = PAIRS[source](rows, run.data)
    for batch, loss in itertools.product(run.batches(data), WRONG[:2]):
        net.update(partial(loss, net), batch)
        x = batch[0]
        net.update(partial(_examples, net), x)


def test_rows_of_what_the_loop_made_itself_are_read(tmp_path: Any) -> None:
    run, net, rows = _run(tmp_path, 3)
    for batch in run.batches(run.data(rows, batch_size=SIZE)):
        net.update(partial(_two, net), torch.stack([batch, batch]))
        net.update(partial(_first, net), batch[:1])
        net.update(partial(_first, net), batch.unsqueeze(0), split=1)


def test_a_loop_that_hands_over_one_row_is_refused(tmp_path: Any) -> None:
    run, net, rows = _run(tmp_path, SIZE)

    def train() -> None:
        for batch in run.batches(run.data(rows, batch_size=SIZE)):
            x = batch[0].to(torch.float32)
            net.update(partial(_examples_of_any, net), x)

    with pytest.raises(
        BatchError, match=r"The loop reads only batch\[0\].*one of its 4 examples, and the other 3"
    ):
        train()


def _examples_of_any(net: Any, rows: Tensor) -> Tensor:
    return net(rows).square().mean(-1)


def test_a_loop_over_rows_that_shows_the_first_is_not(tmp_path: Any) -> None:
    run, net, rows = _run(tmp_path, SIZE)
    for batch in run.batches(run.data(rows, batch_size=SIZE)):
        for row in batch:
            net.update(partial(_examples_of_any, net), row)
        run.log(first=batch[0].mean())


def test_a_loop_that_shows_the_first_row_is_not(tmp_path: Any) -> None:
    run, net, rows = _run(tmp_path, SIZE)
    for batch in run.batches(run.data(rows, batch_size=SIZE)):
        net.update(partial(_examples, net), batch)
        run.log(first=batch[0].mean())


def test_batches_of_one_example_have_no_other(tmp_path: Any) -> None:
    run, net, rows = _run(tmp_path, 3)
    for batch in run.batches(run.data(rows, batch_size=1)):
        net.update(partial(_first, net), batch)
