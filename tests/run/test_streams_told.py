# SPDX-License-Identifier: Apache-2.0
"""What a user of streams is told: the file and line of a broken row, and what can be read only once before it is read."""

import gzip
import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import IterableDataset, get_worker_info

import truestep as ts

BROKEN = '{"x": 3'


def of_iterator(files):
    for path in files:
        with path.open() as file:
            yield from map(json.loads, file)


def of_lines(files):
    for path in files:
        for line in path.read_text().splitlines():
            yield json.loads(line)


def of_bytes(files):
    for path in files:
        with path.open("rb") as file:
            for raw in file:
                row = raw.strip()
                yield {"x": json.loads(row)["x"]}


def parsed(line):
    return {"x": float(line.split(":")[1].split("}")[0]), "whole": line[8]}


def of_function(files):
    for name in map(str, files):
        for line in Path(name).read_text().splitlines(keepends=True):
            yield parsed(line)


class Sharded(IterableDataset):
    """Each worker reads a file of its own."""

    def __init__(self, files, of):
        self.files, self.of = files, of

    def __iter__(self):
        info = get_worker_info()
        return self.of(self.files[info.id :: info.num_workers] if info else self.files)


def shards(folder, last=BROKEN):
    files = [folder / f"{number}.jsonl" for number in range(2)]
    for path in files:
        path.write_text("".join(f'{{"x": {number}}}\n' for number in range(6)) + f"{last}\n")
    files[0].write_text('{"x": 0}\n' * 7)
    return files


def read(folder, data, **options):
    with ts.Run(folder / "run", progress=False, doctor=False) as run:
        for _ in run.batches(run.data(data, **{"batch_size": 7, **options})):
            pass


@pytest.mark.parametrize("of", [of_iterator, of_lines, of_bytes, of_function])
def test_a_broken_row_is_told_with_its_file_and_line(tmp_path, of):
    with pytest.raises((ValueError, IndexError)) as told:
        read(tmp_path, Sharded(shards(tmp_path), of))
    assert told.value.__notes__[0] == (
        f"This happened while sample 13 of the stream was read, from line 7 of {tmp_path / '1.jsonl'}."
    )


def test_so_it_is_where_a_worker_reads(tmp_path):
    with pytest.raises(Exception, match=f"from line 7 of {tmp_path / '1.jsonl'}"):
        read(tmp_path, Sharded(shards(tmp_path), of_iterator), num_workers=2)


def of_packed(files):
    for path in files:
        with gzip.open(path.with_suffix(".gz"), "wt") as file:
            file.write(f"{BROKEN}\n")
        with gzip.open(path.with_suffix(".gz"), "rt") as file:
            yield from map(json.loads, file)


def of_two_alike(files):
    files[1].write_text(f"{BROKEN}\n{BROKEN}\n")
    return of_iterator(files)


def of_no_file(_):
    for row in ["1", "x"]:
        yield json.loads(row)


@pytest.mark.parametrize(
    ("of", "told"),
    [(of_packed, "from {}/0.gz."), (of_two_alike, "from {}/1.jsonl."), (of_no_file, "was read.")],
)
def test_where_no_line_is_known_none_is_told(tmp_path, of, told):
    with pytest.raises(ValueError) as found:  # noqa: PT011 -- of json
        read(tmp_path, Sharded(shards(tmp_path), of))
    assert found.value.__notes__[0].endswith(told.format(tmp_path))


def rows(number=8):
    for each in range(number):
        yield torch.ones(2) * each


def passes(folder, data, epochs=2):
    with ts.Run(folder / "run", progress=False, doctor=False) as run:
        net = run.learner(nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.01))
        source = run.data(data(), batch_size=4)
        for _ in run.epochs(epochs):
            for batch in run.batches(source):
                net.update(lambda x: net(x).square().mean(1), batch)


ITERATORS = {
    "generator": rows,
    "map": lambda: map(torch.relu, rows()),
    "expression": lambda: (torch.ones(2) for _ in range(8)),
    "iterator of a list": lambda: iter([torch.ones(2)] * 8),
}


@pytest.mark.parametrize("kind", ITERATORS)
def test_what_can_be_read_only_once_is_told_in_the_first_epoch(tmp_path, kind, capsys):
    with pytest.raises(ts.DataError, match="can be read only once"):
        passes(tmp_path, ITERATORS[kind])
    told = capsys.readouterr().err
    assert told.count("which can be read only once, and run.epochs(2) is for more") == 1
    assert "truestep: source is a" in told


@pytest.mark.parametrize(("data", "options"), [(lambda: rows, {}), (rows, {"epochs": 1})])
def test_nothing_is_told_of_what_is_read_as_often_as_it_can_be(tmp_path, data, options, capsys):
    passes(tmp_path, data, **options)
    assert "only once" not in capsys.readouterr().err
