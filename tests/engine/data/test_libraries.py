# SPDX-License-Identifier: Apache-2.0
"""Data of the form that libraries for large data sets give: what is entered by number, and what is said of what is no data."""

import csv
import glob
import json
import textwrap
from pathlib import Path

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    TensorDataset,
)

from truestep.core.errors import DataError, OptionError
from truestep.engine.data import DataOptions, open_source
from truestep.engine.data.unsupported_data_hints import mistaken_data_message
from truestep.engine.processes.batch_row_shares import RankShare


class Streaming(IterableDataset):
    """As MosaicML Streaming and litdata have it: iterable, with a length and samples by number; its loader asks for states."""

    def __init__(self, size=20, num_ranks=1, *, shuffle=False):
        self.size, self.num_ranks, self.shuffle = size, num_ranks, shuffle

    def __len__(self):  # of one rank
        return self.size // self.num_ranks

    def __getitem__(self, index):
        if not 0 <= index < self.size:
            raise IndexError(index)
        return torch.tensor(index)

    def __iter__(self):
        raise AssertionError("read from front to back")

    def __next__(self):
        raise AssertionError("read from front to back")

    def state_dict(self, num_samples, from_beginning):
        raise AssertionError("asked for a state")

    def load_state_dict(self, obj):
        raise AssertionError("given a state")


def batches(data, start=0, share=None, **options):
    source = open_source(data, DataOptions(**options), seed=0, share=share or RankShare())
    found = [batch.tolist() for batch in source.batches(0, start)]
    source.close()
    return found


@pytest.mark.parametrize("num_workers", [0, 2])
def test_what_has_samples_by_number_is_entered_by_number_whatever_its_base_class(num_workers):
    options = {"batch_size": 6, "shuffle": True, "num_workers": num_workers}
    whole = batches(Streaming(), **options)
    assert whole == batches(torch.arange(20), batch_size=6, shuffle=True)
    assert batches(Streaming(), 2, **options) == whole[2:]


def test_a_loader_of_such_a_data_set_is_taken_with_the_order_that_was_asked_for():
    assert batches(DataLoader(Streaming(), batch_size=6)) == batches(torch.arange(20), batch_size=6)
    shuffled = batches(DataLoader(Streaming(shuffle=True), batch_size=6))
    assert shuffled == batches(torch.arange(20), batch_size=6, shuffle=True)


def test_an_order_of_its_own_loop_is_not_lost_in_silence():
    with pytest.raises(DataError, match=r"made with shuffle=True.*Write run.data\(data, ..., shuffle=True\)"):
        batches(Streaming(shuffle=True), batch_size=6)
    assert len(batches(Streaming(shuffle=True), batch_size=6, shuffle=True)) == 4


def test_a_length_of_one_rank_is_not_taken_for_the_whole():
    two = RankShare(1, 2)
    with pytest.raises(DataError, match=r"is 10, and it has a sample of that number, too(.|\n)*class Whole"):
        batches(Streaming(num_ranks=2), batch_size=6, share=two)
    assert batches(Streaming(), batch_size=6, share=two) == [[3, 4, 5], [9, 10, 11], [15, 16, 17], [19]]


class OnlyRaises(IterableDataset):
    """torch's own __getitem__ is no way to ask for samples, whatever length there is beside it."""

    def __len__(self):
        return 4

    def __iter__(self):
        yield from range(4)


def test_a_length_alone_makes_no_data_set_by_number():
    assert batches(OnlyRaises(), batch_size=3) == [[0, 1, 2], [3]]


ATTRIBUTES = ("sampler", "batch_size", "drop_last", "data_source", "replacement", "num_samples", "generator")


class Stateful(DataLoader):
    """As torchdata's StatefulDataLoader: samplers of its own classes, and a state."""

    def __init__(self, data, batch_size, *, shuffle):
        order = torchdatas(RandomSampler(data)) if shuffle else SequentialSampler(data)
        super().__init__(data, batch_sampler=torchdatas(BatchSampler(order, batch_size, drop_last=False)))

    def state_dict(self):
        raise AssertionError("asked for a state")


def torchdatas(sampler):
    """Return a sampler with the same attributes, of a class of torchdata's that is not derived from torch's."""
    made = type(type(sampler).__name__, (Sampler,), {"__module__": "torchdata.stateful_dataloader.sampler"})()
    vars(made).update({name: getattr(sampler, name) for name in ATTRIBUTES if hasattr(sampler, name)})
    return made


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_stateful_loader_over_a_map_is_taken_as_a_loader_is(shuffle):
    data = list(range(20))
    expected = batches(data, batch_size=6, shuffle=shuffle)
    assert batches(Stateful(data, 6, shuffle=shuffle)) == expected
    own = type("BatchSampler", (BatchSampler,), {"__module__": "mine"})
    with pytest.raises(DataError, match="the batch sampler BatchSampler"):
        batches(DataLoader(data, batch_sampler=own(range(20), 6, drop_last=False)))


@pytest.mark.parametrize("data", [list(range(20)), OnlyRaises()], ids=["map", "stream"])
@pytest.mark.parametrize(("rank", "size"), [(0, 2), (1, 2), (2, 3)])
def test_several_ranks_say_what_a_loaders_batch_size_is_a_number_of(data, rank, size):
    share = RankShare(rank, size)
    with pytest.raises(OptionError) as caught:
        batches(DataLoader(data, batch_size=4), share=share)
    assert f"run.data(loader, batch_size={4 * size})  # 4 on each of {size} ranks" in str(caught.value)
    assert "run.data(loader, batch_size=4)  # 4 of all ranks together" in str(caught.value)
    for batch_size in (4, 4 * size):
        found = batches(DataLoader(data, batch_size=4), batch_size=batch_size, share=share)
        assert found == batches(data, batch_size=batch_size, share=share)


def test_alone_a_batch_size_may_stand_beside_a_loader():
    assert batches(DataLoader(list(range(5)), batch_size=2), batch_size=4) == [[0, 1, 2, 3], [4]]
    ready = DataLoader(OnlyRaises(), batch_size=None)
    assert batches(ready, share=RankShare(0, 2), batch_size=2) == [[0], [2]]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("data", [list(range(20)), OnlyRaises()], ids=["map", "stream"])
@pytest.mark.parametrize(("own", "said"), [(4, 2), (4, 3), (4, 6), (3, 20)])
def test_a_batch_size_that_is_another_than_the_loaders_is_refused(data, own, said, shuffle):
    shuffle = shuffle and isinstance(data, list)
    for share in (RankShare(0, 1), RankShare(1, 2)):
        with pytest.raises(
            OptionError, match=f"batch_size={said} beside a DataLoader that makes batches of {own}"
        ):
            batches(DataLoader(data, batch_size=own, shuffle=shuffle), batch_size=said, share=share)


class Named:
    """Has what libraries' classes have: attributes by which they are known."""

    column_names = ("text", "label")

    def __init__(self, *names):
        for name in names:
            setattr(self, name, None)


class Table(Named):
    pass


class ParquetFile(Named):
    pass


class FileSystemDataset(Named):
    pass


class DatasetDict(dict):
    pass


TABLE = ("schema", "to_batches", "to_pydict", "__dataframe__")


class Streamed(IterableDataset):
    def __iter__(self):
        yield from range(5)


MIXED = 'mixture = ts.Mixture({"a": a, "b": b}, weights={"a": 0.7, "b": 0.3})'
MISTAKEN = {
    "streams by split": (
        {"train": Streamed(), "test": Streamed()},
        ["train = run.data(data['train'], batch_size=64)"],
    ),
    "streams by name": (
        {"web": Streamed(), "code": Streamed()},
        ["train = run.data(data['web'], batch_size=64)\n", MIXED],
    ),
    "streams in a list": (
        [Streamed(), Streamed()],
        ["a list of 2 data sets", "run.data(torch.utils.data.ChainDataset(data), batch_size=64)", MIXED],
    ),
    "data sets in a tuple": (
        (TensorDataset(torch.zeros(3)), TensorDataset(torch.zeros(2))),
        ["a tuple of 2 data sets", "run.data(torch.utils.data.ConcatDataset(data), batch_size=64)"],
    ),
    "paths in a list": (
        [Path("0.parquet"), Path("1.parquet")],
        ["a list of 2 names of files ('0.parquet', ...)", "data_files=[str(file) for file in files]"],
    ),
    "shards in a list": (
        ["0.tar", "1.tar"],
        ["webdataset.WebDataset([str(file) for file in files], shardshuffle=False)"],
    ),
    "lines in a list": (
        ["0.jsonl", "1.jsonl"],
        ["2 names of files", "for file in files:", "with open(file)", "map(json.loads, lines)"],
    ),
    "packed lines in a list": (
        [Path("0.jsonl.gz"), Path("1.jsonl.gz")],
        ["2 names of files", 'with gzip.open(file, "rt") as lines:'],
    ),
    "tables in a list": (["0.csv", "1.csv"], ["2 names of files", "csv.DictReader(lines)"]),
    "a file of lines": ("shard-0.jsonl", ["the name of a file", "for file in ['shard-0.jsonl']:"]),
    "a pattern of lines": ("a/*.ndjson", ["for file in sorted(glob.glob('a/*.ndjson')):"]),
    "a text": (Path("a/all.txt"), ["for file in ['a/all.txt']:", "line.rstrip()"]),
    "a JSON document": ("a.json", ["json.load(open('a.json'))"]),
    "a table of tabs": ("a.tsv", ["delimiter='\\t'"]),
    "a pattern": ("shards/*.tar", ["webdataset.WebDataset(sorted(glob.glob('shards/*.tar')), shardshuffle"]),
    "data sets by split": (
        DatasetDict(train=Named("features"), test=Named("features")),
        [
            "a DatasetDict of the data sets 'train', 'test'",
            "train = run.data(data['train'], batch_size=64, shuffle=True)",
        ],
    ),
    "torch's by split": (
        {"valid": OnlyRaises(), "test": OnlyRaises()},
        ["a dict of the data sets 'valid'", "train = run.data(data['valid'], batch_size=64"],
    ),
    "table": (
        Table(*TABLE),
        [
            "a pyarrow Table",
            "for name in ['text', 'label']}",
            "train = run.data(columns, batch_size=64, shuffle=True)",
        ],
    ),
    "Parquet file": (
        ParquetFile("iter_batches", "num_row_groups", "read_row_group"),
        [
            "pyarrow.parquet.ParquetFile(path).iter_batches():",
            "train = run.data(rows, batch_size=64)",
            'load_dataset("parquet"',
        ],
    ),
    "pyarrow.dataset": (
        FileSystemDataset("schema", "to_batches", "scanner", "get_fragments"),
        ["for part in data.to_batches():", "data_files=data.files"],
    ),
    "path of a tar": ("shards/000.tar", ["webdataset.WebDataset('shards/000.tar', shardshuffle=False)"]),
    "path of a packed tar": (
        Path("a/000.tar.gz"),
        ["webdataset.WebDataset('a/000.tar.gz', shardshuffle=False)"],
    ),
    "path of a Parquet file": (
        Path("part.parquet"),
        ['datasets.load_dataset("parquet", data_files=\'part.parquet\', split="train")'],
    ),
}


@pytest.mark.parametrize("name", MISTAKEN)
def test_what_is_no_data_is_told_line_for_line(name):
    data, lines = MISTAKEN[name]
    with pytest.raises(DataError) as caught:
        batches(data, batch_size=2)
    for line in lines:
        assert line in str(caught.value)


def test_names_of_files_that_a_function_opens_are_samples():
    def read(names):
        return torch.tensor([int(name[0]) for name in names])

    assert batches(["0.tar", "1.tar"], batch_size=2, collate=read) == [[0, 1]]
    assert batches(["0.jsonl", "1.jsonl"], batch_size=2, collate=read) == [[0, 1]]


@pytest.mark.parametrize(
    "samples",
    [["0.txt", "1.txt"], ["0.png", "1.png"], ["0.jsonl", "a text"], ["see a.csv for it", "no name"]],
)
def test_texts_that_are_samples_are_no_names_of_files(samples):
    assert mistaken_data_message(samples) is None


@pytest.mark.parametrize("written", ["{}", "*{}"])
@pytest.mark.parametrize(
    ("ending", "text"),
    [(".jsonl", '{"x": 1}\n{"x": 2}\n'), (".csv", "x\n1\n2\n"), (".tsv", "x\ty\n1\t2\n3\t4\n")],
)
def test_the_lines_that_read_lines_run(ending, text, written, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"a{ending}").write_text(text)
    with pytest.raises(DataError) as caught:
        batches(written.format(f"a{ending}"), batch_size=2)
    lines = textwrap.dedent(
        "\n".join(each for each in str(caught.value).splitlines() if each.startswith("    "))
    )
    names = {"csv": csv, "json": json, "glob": glob}
    exec(lines.partition("train =")[0], names)
    assert len([*names["rows"]()]) == 2
    assert int(next(iter(names["rows"]()))["x"]) == 1


@pytest.mark.imports_framework
def test_the_real_ones_are_known(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    datasets = pytest.importorskip("datasets")
    from pyarrow import dataset, parquet

    table = pyarrow.table({"x": [1.0, 2.0, 3.0], "y": [0, 1, 0]})
    path = tmp_path / "part.parquet"
    parquet.write_table(table, path)
    found = datasets.Dataset(table)
    for data, words in (
        (table, "a pyarrow Table"),
        (parquet.ParquetFile(path), "a ParquetFile, an open file"),
        (dataset.dataset(path), "a FileSystemDataset of pyarrow.dataset"),
        (datasets.DatasetDict(train=found, test=found), "a DatasetDict of the data sets"),
        (
            datasets.IterableDatasetDict(train=found.to_iterable_dataset()),
            "an IterableDatasetDict of the data sets 'train'",
        ),
    ):
        with pytest.raises(DataError) as caught:
            batches(data, batch_size=2)
        assert words in str(caught.value)

    columns = {name: torch.tensor(table[name].to_numpy()) for name in ["x", "y"]}
    assert len([*open_source(columns, DataOptions(batch_size=2), seed=0).batches(0)]) == 2

    def parts():
        for part in parquet.ParquetFile(path).iter_batches():
            yield from part.to_pylist()

    assert len([*open_source(parts, DataOptions(batch_size=2), seed=0).batches(0)]) == 2
