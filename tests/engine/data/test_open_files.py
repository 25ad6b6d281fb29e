# SPDX-License-Identifier: Apache-2.0
"""Data that hold an open file: whoever reads it in a process of its own moves nothing under the others."""

import multiprocessing
import time

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from truestep.engine.data import DataOptions, open_source

pytestmark = pytest.mark.skipif(
    multiprocessing.get_context().get_start_method() != "fork", reason="open files go to forked processes"
)
WIDTH = 100


class Lines(IterableDataset):
    """A stream whose state is its place in a file."""

    def __init__(self, path, buffering):
        self.file, self.goes_on = path.open("rb", buffering=buffering), False

    def state_dict(self):
        return {"place": self.file.tell()}

    def load_state_dict(self, state):
        self.goes_on = bool(self.file.seek(state["place"])) or True

    def __iter__(self):
        if not self.goes_on:
            self.file.seek(0)
        self.goes_on = False
        while line := self.file.readline():
            yield int(line)


class Rows(Dataset):
    """Rows of a file, asked for by number; another worker has the time to seek in between."""

    def __init__(self, path, buffering):
        self.file, self.size = path.open("rb", buffering=buffering), path.stat().st_size // WIDTH

    def __len__(self):
        return self.size

    def __getitem__(self, number):
        self.file.seek(number * WIDTH)
        time.sleep(0.002)
        return int(self.file.read(WIDTH))


@pytest.mark.sliced(4)
@pytest.mark.parametrize("buffering", [0, 128, -1])
@pytest.mark.parametrize(("kind", "workers"), [(Lines, 0), (Lines, 1), (Rows, 0), (Rows, 2)])
def test_each_sample_of_an_open_file_comes_once(tmp_path, kind, workers, buffering):
    path = tmp_path / "samples"
    path.write_bytes(b"".join(b"%099d\n" % number for number in range(60)))
    data = kind(path, buffering)
    source = open_source(data, DataOptions(batch_size=4, num_workers=workers, check=False), seed=0)
    found = torch.cat([*source.batches(0)]).tolist()
    source.close()
    data.file.close()
    assert found == [*range(60)]
