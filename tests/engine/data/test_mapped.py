# SPDX-License-Identifier: Apache-2.0
"""Map-style data: the same batches by any number of workers, and errors that name the sample."""

import dataclasses
import multiprocessing
import os
import signal
import time
from contextlib import suppress

import psutil
import pytest
import torch
from torch.multiprocessing.reductions import shared_cache
from torch.utils.data import Dataset, StackDataset, Subset

from truestep.core.errors import DataError
from truestep.engine.data import DataOptions, open_source
from truestep.engine.data.workers import choose_num_workers


class Squares(Dataset):
    def __init__(self, size=20):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return {"x": index, "y": torch.tensor(index**2)}


class Together(Squares):
    def __init__(self, size=20):
        super().__init__(size)
        self.calls = []

    def __getitems__(self, indices):
        self.calls.append(indices)
        return [(index, torch.rand(())) for index in indices]


class Failing(Squares):
    def __getitem__(self, index):
        if index == 17:
            raise KeyError("seventeen")
        return index


class KilledOnce(Squares):
    def __init__(self, flag):
        super().__init__()
        self.flag = flag

    def __getitem__(self, index):
        if index == 17 and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return index


@pytest.fixture
def opened():
    sources = []

    def open_one(data, **options):
        sources.append(
            open_source(data, DataOptions(**{"batch_size": 6, "num_workers": 0, **options}), seed=0)
        )
        return sources[-1]

    yield open_one
    for source in sources:
        source.close()


@pytest.mark.parametrize("num_workers", [0, 1, 4])
def test_batches_come_in_order_from_any_start_in_any_epoch(opened, num_workers):
    source = opened(Squares(), shuffle=True, num_workers=num_workers)
    for epoch, start in [(0, 0), (0, 2), (3, 1), (0, 4)]:
        expected = [b["x"].tolist() for b in opened(Squares(), shuffle=True).batches(epoch)][start:]
        found = list(source.batches(epoch, start))
        assert expected == [batch["x"].tolist() for batch in found]
        assert all(torch.equal(batch["y"], batch["x"] ** 2) for batch in found)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_loops_may_break_off_and_run_side_by_side(opened, num_workers):
    source = opened(Squares(), num_workers=num_workers)
    for batch in source.batches(0):
        assert batch["x"].tolist() == [0, 1, 2, 3, 4, 5]
        break
    pairs = zip(source.batches(0), source.batches(0, 1), strict=False)
    assert [(int(a["x"][0]), int(b["x"][0])) for a, b in pairs] == [(0, 6), (6, 12), (12, 18)]
    assert len(list(source.batches(1))) == 4


def test_workers_stay_alive_from_epoch_to_epoch_and_end_when_closed(opened):
    class Pids(Squares):
        def __getitem__(self, index):
            return os.getpid()

    source = opened(Pids(), num_workers=2)
    pids = [set(torch.cat(list(source.batches(epoch))).tolist()) for epoch in (0, 1)]
    assert pids[0] == pids[1]
    assert len(pids[0]) == 2
    source.close()
    for pid in pids[0]:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert len(list(source.batches(2))) == 4, "a closed source can be used again"


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_keeps_its_type_and_names_the_sample(opened, num_workers):
    source = opened(Failing(), shuffle=True, num_workers=num_workers, check=False)
    order = [i for b in opened(Squares(), shuffle=True).batches(1) for i in b["x"].tolist()]
    with pytest.raises(KeyError) as caught:
        list(source.batches(1))
    told = str(caught.value) + "".join(getattr(caught.value, "__notes__", []))
    assert "seventeen" in told
    assert f"sample 17 (at position {order.index(17)} of epoch 1)" in told
    first = next(source.batches(0))
    assert len(first) == 6, "the source can be used again"


def test_a_killed_worker_is_explained_with_its_sample(opened, tmp_path):
    source = opened(KilledOnce(tmp_path / "killed"), num_workers=2, check=False)
    with pytest.raises(DataError, match=r"died while it was loading sample 17 \(position 17\)") as caught:
        list(source.batches(0))
    assert "out of memory" in str(caught.value)
    assert next(source.batches(0)).tolist() == [0, 1, 2, 3, 4, 5], "the source can be used again"


class UntilOrphaned:
    """Starts a worker: it tells its number, and goes on once the training process is no more."""

    def __init__(self, flag):
        self.flag = flag

    def __call__(self, worker):
        training = multiprocessing.parent_process().pid
        self.flag.with_suffix(".new").write_text(str(os.getpid()))
        self.flag.with_suffix(".new").rename(self.flag)
        while psutil.pid_exists(training):
            time.sleep(0.01)


@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
def test_a_worker_ends_whose_training_process_was_killed_before_its_loop_began(tmp_path, start_method):
    flag = tmp_path / "started"
    options = {"num_workers": 1, "worker_init": UntilOrphaned(flag), "start_method": start_method}
    training = os.fork()
    if training == 0:
        try:
            list(open_source(Squares(), DataOptions(batch_size=6, **options), seed=0).batches(0))
        finally:
            os._exit(1)
    deadline = time.monotonic() + 60
    while not flag.exists():
        assert time.monotonic() < deadline, "no worker came"
        time.sleep(0.01)
    os.kill(training, signal.SIGKILL)
    os.waitpid(training, 0)
    worker = int(flag.read_text())
    try:
        while psutil.pid_exists(worker) and psutil.Process(worker).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, "the worker stays"
            time.sleep(0.05)
    except psutil.NoSuchProcess:
        return
    finally:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


def test_workers_leave_signals_to_the_training_process(opened):
    class Interrupted(Squares):
        def __getitem__(self, index):
            for number in (signal.SIGINT, signal.SIGUSR1):
                os.kill(os.getpid(), number)
            assert os.getpgid(os.getpid()) != os.getpgid(os.getppid()), "a signal to the group stays away"
            return index

    source = opened(Interrupted(), num_workers=1, check=False)
    assert list(range(20)) == torch.cat(list(source.batches(0))).tolist()


def test_samples_can_be_loaded_many_at_a_time(opened):
    data = Together()
    source = opened(data, check=False)
    found = list(source.batches(0))
    assert data.calls[:2] == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    parallel = list(opened(Together(), num_workers=2, check=False).batches(0))
    assert all(torch.equal(a[1], b[1]) for a, b in zip(found, parallel, strict=True))


def test_a_subset_loads_sample_by_sample_unless_its_data_set_does_not(opened):
    assert torch.cat([b["x"] for b in opened(Subset(Squares(), [3, 4])).batches(0)]).tolist() == [3, 4]
    data = Together()
    list(opened(Subset(data, [3, 4, 5]), check=False).batches(0))
    assert data.calls == [[3, 4, 5]]


def test_an_inherited_getitems_does_not_hide_an_overridden_getitem(opened):
    class Doubled(Together):
        def __getitem__(self, index):
            return 2 * index

    assert next(opened(Doubled()).batches(0)).tolist() == [0, 2, 4, 6, 8, 10]
    data = Doubled()
    stacked = opened(StackDataset(data, Squares()), check=False)
    assert next(stacked.batches(0))[0].tolist() == [0, 2, 4, 6, 8, 10]
    assert data.calls == []


def test_a_list_is_loaded_here(opened):
    assert next(c.value for c in opened([1, 2], num_workers="auto").choices if c.name == "workers") == "0"


def test_too_few_samples_from_getitems_are_refused(opened):
    class Short(Together):
        def __getitems__(self, indices):
            return [0]

    with pytest.raises(DataError, match="asked for 6 samples and returned 1"):
        list(opened(Short(), check=False).batches(0))


def test_data_classes_are_stacked_and_ragged_samples_kept(opened):
    @dataclasses.dataclass
    class Sample:
        x: torch.Tensor
        y: int

    batch = next(opened([Sample(torch.ones(2), i) for i in range(6)]).batches(0))
    assert batch.x.shape == (6, 2)
    assert torch.arange(6).equal(batch.y)
    ragged = [torch.ones(length) for length in (1, 2, 3)]
    assert [len(part) for part in next(opened(ragged, collate=list).batches(0))] == [1, 2, 3]
    with pytest.raises(RuntimeError) as caught:
        next(opened(ragged).batches(0))
    assert "collate=list keeps them" in caught.value.__notes__[0]
    with pytest.raises(KeyError) as caught:
        next(opened([{"x": 1, "y": 2}, {"x": 1}]).batches(0))
    assert "the same structure" in caught.value.__notes__[0]


def test_the_fingerprint_shows_samples_and_changes_with_them(opened):
    one, other = opened(Squares()).fingerprint(), opened(Failing(), check=False).fingerprint()
    assert one == opened(Squares(), num_workers=1).fingerprint()
    assert {key: one[key] for key in ("kind", "class", "num_samples", "sample")} == {
        "kind": "map-style",
        "class": "Squares",
        "num_samples": 20,
        "sample": ["int", "torch.int64 ()"],
    }
    assert one != other


def test_the_look_at_samples_happens_where_they_are_loaded(opened):
    """A file that the first sample opens must not be shared between this process and its workers."""

    class Opening(Squares):
        opened_by = None

        def __getitem__(self, index):
            self.opened_by = self.opened_by or os.getpid()
            assert self.opened_by == os.getpid()
            return index

    data = Opening()
    list(opened(data, num_workers=2).batches(0))
    list(opened(data, num_workers="auto").batches(0))


def test_auto_loads_cheap_samples_here_and_dear_ones_in_workers(opened):
    class Dear(Squares):
        def __getitem__(self, index):
            time.sleep(0.03)
            return index

    assert next(c.value for c in opened(Squares(), num_workers="auto").choices if c.name == "workers") == "0"
    (dear,) = [c for c in opened(Dear(), num_workers="auto").choices if c.name == "workers"]
    assert "less than handing them over costs" not in dear.reason
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    assert choose_num_workers(1e-6, 10**6, cuda).value == "0"
    assert choose_num_workers(1e-3, 100, cuda).value == "0"
    assert int(choose_num_workers(1e-2, 10**5, cpu).value) <= int(choose_num_workers(1e-2, 10**5, cuda).value)


def test_a_data_set_that_can_not_be_sent_to_spawned_workers_is_refused(opened):
    class Local(Squares):
        pass

    with pytest.raises(DataError, match="can't be sent to worker processes"):
        opened(Local(), num_workers=1, start_method="spawn")


def test_spawned_workers_load_the_same(opened):
    source = opened(list(range(20)), num_workers=1, start_method="spawn", shuffle=True)
    expected = [batch.tolist() for batch in opened(list(range(20)), shuffle=True).batches(0)]
    assert expected == [batch.tolist() for batch in source.batches(0)]


def test_what_torch_remembers_of_a_batch_of_workers_goes_with_it(opened):
    source = opened(Squares(100), batch_size=2, num_workers=2, prefetch=2)
    remembered = [len(shared_cache) for _ in source.batches(0)]
    assert max(remembered[10:]) <= remembered[0] + 2 * 3  # two tensors a batch: this one, the last, the next


def test_workers_that_can_not_be_started_are_told_in_plain_words(opened, monkeypatch):
    source = opened(Squares(), batch_size=4, num_workers=2, check=False)

    def refuse(process):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("multiprocessing.process.BaseProcess.start", refuse)
    with pytest.raises(
        DataError, match=r"the 2 worker processes can't be started: .*unavailable.*\n?.*num_workers=0"
    ):
        next(iter(source.batches(0)))


class Strength:
    def __init__(self):
        self.factor = 1


class Settled(Squares):
    """Samples that follow from settings, held in many ways."""

    def __init__(self):
        super().__init__(4)
        self.level, self.strength, self.transforms = 0, Strength(), [Strength()]
        self.options, self.rows, self.order = {"factor": 1}, torch.zeros(4), list(range(4))

    def __getitem__(self, index):
        settings = self.strength.factor, self.transforms[0].factor, self.options["factor"], len(self.order)
        return os.getpid(), self.level, *settings, self.rows[index]


class Wrapping(Squares):
    def __init__(self):
        super().__init__(4)
        self.data = Settled()

    def __getitem__(self, index):
        return self.data[index]


def set_level(data):
    data.level = 1


def set_within_an_object(data):
    data.strength.factor = 2


def set_within_a_list(data):
    data.transforms[0].factor = 2


def set_within_a_dict(data):
    data.options["factor"] = 2


def written_in_place(data):
    data.rows[2:] = 1


def written_anew(data):
    data.rows = torch.ones(4)


def list_grown(data):
    data.order.append(4)


def nothing(data):
    assert data.level == 0


CHANGES = (
    set_level,
    set_within_an_object,
    set_within_a_list,
    set_within_a_dict,
    written_in_place,
    written_anew,
    list_grown,
    nothing,
)


@pytest.mark.sliced(4)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("kind", [Settled, Wrapping, lambda: Subset(Settled(), range(4))])
def test_workers_read_what_was_set_between_two_epochs(opened, kind, change):
    data = kind()
    settled = next((held for held in vars(data).values() if isinstance(held, Settled)), data)
    source = opened(data, num_workers=1)
    before = columns_of(source, 0)
    change(settled)
    after = columns_of(source, 1)
    expected = [torch.as_tensor(column) for column in zip(*(data[each] for each in range(4)), strict=True)]
    assert all(map(torch.equal, after[1:], expected[1:])), (after, expected)
    assert torch.equal(before[0], after[0]) == (change is nothing)  # the same process, if it can be


def columns_of(source, epoch):
    (batch,) = source.batches(epoch)
    return batch
