# SPDX-License-Identifier: Apache-2.0
"""Files that data maps or holds open: one that grows or shrinks within a pass, or between two starts of a run, is said."""

import os

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import truestep as ts

WIDTH, ROWS = 4, 60


class Mapped(Dataset):
    """Rows of a memory map; the length may follow the file or stay."""

    def __init__(self, path, length=None):
        self.parts = {"train": [np.memmap(path, np.int64, "r")]}
        self.length = length

    def __len__(self):
        return self.length or len(self.parts["train"][0]) // WIDTH

    def __getitem__(self, number):
        return torch.from_numpy(self.parts["train"][0][number * WIDTH :][:WIDTH].copy())


class Opened(Mapped):
    def __init__(self, path, length=None):
        self.file, self.length = path.open("rb"), length

    def __len__(self):
        return self.length or os.fstat(self.file.fileno()).st_size // (8 * WIDTH)

    def __getitem__(self, number):
        self.file.seek(8 * WIDTH * number)
        return torch.from_numpy(np.frombuffer(self.file.read(8 * WIDTH), np.int64).copy())


def columns(path, length=None):
    return np.memmap(path, np.int64, "r").reshape(-1, WIDTH)[:length]


FORMS = {"mapped": Mapped, "opened": Opened, "columns": columns}


@pytest.fixture
def path(tmp_path):
    np.arange(WIDTH * ROWS).tofile(tmp_path / "tokens.bin")
    return tmp_path / "tokens.bin"


def grown(path):
    with path.open("ab") as file:
        file.write(bytes(8 * WIDTH * 10))


def shrunk(path):
    os.truncate(path, 8 * WIDTH * (ROWS - 10))


def replaced(path):
    path.with_name("new").write_bytes(path.read_bytes())
    path.with_name("new").replace(path)


def train(folder, data, *, at=None, change=None, ends=None):
    with ts.Run(
        folder, progress=False, doctor=False, saving=ts.Saving(every_steps=2, background=False)
    ) as run:
        source = run.data(data, batch_size=10, num_workers=0)
        for _ in run.epochs(2):
            for _ in run.batches(source):
                if run.step == at and change is not None:
                    change()
                if run.step == ends:
                    raise KeyboardInterrupt
        file = getattr(data, "file", None)
        if file is not None:
            file.close()
        return run.step


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_grows_within_a_pass_is_said_once(form, path, tmp_path, capsys):
    assert train(tmp_path / "run", FORMS[form](path), at=2, change=lambda: grown(path)) == 12
    told = "'source': its file tokens.bin had 1,920 bytes when it was opened and has 2,240 now"
    assert capsys.readouterr().err.count(told) == 1


@pytest.mark.parametrize("form", ["mapped", "columns"])
def test_a_mapped_file_that_shrinks_ends_the_run_in_words_before_it_is_read(form, path, tmp_path):
    with pytest.raises(
        ts.DataError, match=r"had 1,920 bytes .* has 1,600 now\. Put back what is missing.*SIGBUS"
    ):
        train(tmp_path / "run", FORMS[form](path), at=6, change=lambda: shrunk(path))


def test_a_file_that_is_replaced_is_said(path, tmp_path, capsys):
    train(tmp_path / "run", Mapped(path), at=2, change=lambda: replaced(path))
    assert capsys.readouterr().err.count("its file tokens.bin is another file since it was opened") == 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("length", [None, 50])
@pytest.mark.parametrize("change", [grown, shrunk])
def test_a_file_that_changes_between_two_starts_is_said_or_refused(
    form, length, change, path, tmp_path, capsys
):
    data = FORMS[form](path, length)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", data, ends=3)
    if form == "opened":
        data.file.close()
    del data
    capsys.readouterr()
    change(path)
    if length is not None:
        train(tmp_path / "run", FORMS[form](path, length))
        told = "its file tokens.bin had 1,920 bytes when the run was saved and has"
        assert capsys.readouterr().err.count(told) == 1
    else:
        data = FORMS[form](path, length)
        with pytest.raises(ts.DataError, match="num_samples was 60, is"):
            train(tmp_path / "run", data)
        if form == "opened":
            data.file.close()


def test_files_that_stay_and_those_that_are_written_are_not_spoken_of(path, tmp_path, capsys):
    data = Mapped(path)
    data.log = (tmp_path / "log.txt").open("w")
    train(tmp_path / "run", data, at=2, change=lambda: data.log.write("x" * 99_999))
    data.log.close()
    assert "its file" not in capsys.readouterr().err


class Lazy:
    """Imports something when it is asked for anything, as `six.moves` does."""

    def __getattr__(self, name):
        raise ImportError(name)


def test_nothing_is_asked_that_runs_code_of_what_a_data_set_holds(path, tmp_path, capsys):
    data = Mapped(path)
    data.others = [Lazy(), ts, lambda: data]
    train(tmp_path / "run", data, at=2, change=lambda: grown(path))
    assert capsys.readouterr().err.count("its file tokens.bin had") == 1
