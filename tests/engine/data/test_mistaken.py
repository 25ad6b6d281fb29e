# SPDX-License-Identifier: Apache-2.0
"""What users of other libraries give as data that is none yet: names of the Hub, modules of Lightning, functions of samples."""

from functools import partial

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import truestep as ts
from truestep.engine.data.options import DataOptions
from truestep.engine.data.unsupported_data_hints import mistaken_data_message

ROWS = TensorDataset(torch.randn(8, 4), torch.zeros(8).long())


@pytest.mark.parametrize(
    "name", ["imdb", "glue", "stanfordnlp/imdb", "rotten-tomatoes", "HuggingFaceH4/no_robots"]
)
def test_a_name_of_the_hub_is_loaded_first(name):
    said = mistaken_data_message(name)
    assert f"datasets.load_dataset({name!r}, split=" in said
    assert "run.data(data, batch_size=64, shuffle=True)" in said


@pytest.mark.parametrize("name", ["train.csv", "data/images/train", "/data/imagenet", "../imdb", "a b"])
def test_another_name_is_none_of_the_hub(name):
    assert "load_dataset(" not in mistaken_data_message(name)


def test_a_folder_that_is_there_is_none_of_the_hub(tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    monkeypatch.chdir(tmp_path)
    assert "load_dataset" not in mistaken_data_message("images")


class Digits:
    """The form of a LightningDataModule, whose library sets an environment variable as it is imported."""

    def prepare_data(self):
        pass

    def setup(self, stage):
        pass

    def train_dataloader(self):
        return DataLoader(ROWS, batch_size=4)


def test_a_data_module_is_taken_apart():
    said = mistaken_data_message(Digits())
    assert "data is a Digits, a LightningDataModule" in said
    assert "train = run.data(module.train_dataloader())" in said


class Padding:
    def __call__(self, features):
        return features


class Samples:
    def of(self, path, size):
        yield path, size


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda rows: rows, "<lambda>"),
        (torch.utils.data.default_collate, "default_collate"),
        (Padding(), "Padding(...)"),
        (Samples().of, "of"),
        (lambda epoch, path: path, "<lambda>"),
    ],
)
def test_a_function_that_needs_arguments_is_no_data(function, name):
    assert f"data is the function {name}, which needs " in mistaken_data_message(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda: iter(range(3)),
        lambda epoch: range(epoch + 1),
        lambda i: range(i + 1),
        lambda epoch=0: range(3),
        lambda size=3: range(size),
        lambda *sizes: sizes,
        partial(Samples().of, "a", 2),
    ],
)
def test_a_function_that_makes_data_is_data(function):
    assert mistaken_data_message(function) is None


@pytest.fixture
def net(tmp_path):
    with ts.Run(tmp_path, device="cpu", progress=False, doctor=False, quiet=True) as run:
        yield run.learner(torch.nn.Linear(4, 2), lambda p: torch.optim.SGD(p, lr=0.1))


def rows_of_the_hub(**columns):
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict({"x": [[1.0, 2, 3, 4]] * 4, "y": [0, 1] * 2, **columns})


@pytest.mark.parametrize(
    "made",
    [
        rows_of_the_hub,
        lambda: rows_of_the_hub().with_format("torch"),
        lambda: rows_of_the_hub(text=["a"] * 4),
        lambda: rows_of_the_hub().to_iterable_dataset(),
        lambda: rows_of_the_hub().class_encode_column("y"),
    ],
)
def test_samples_are_not_evaluated_as_batches(net, made):
    with pytest.raises(ts.OptionError, match=r"take each for a batch.*run\.data\(data.*, batch_size=256\)"):
        net.evaluate(lambda batch: net(batch["x"])[:, 0], made())


@pytest.mark.parametrize("name", ["imdb", "test.csv"])
def test_a_name_is_not_evaluated(net, name):
    with pytest.raises(ts.OptionError, match="and not data"):
        net.evaluate(lambda batch: net(batch)[:, 0], name)


@pytest.mark.parametrize(
    "made",
    [
        lambda: rows_of_the_hub().with_format("torch").iter(batch_size=2),
        lambda: rows_of_the_hub().batch(2).with_format("torch"),
        lambda: DataLoader(rows_of_the_hub().with_format("torch"), batch_size=2),
        lambda: [{"x": torch.ones(2, 4)}] * 2,
    ],
)
def test_batches_are_evaluated_as_they_are(net, made):
    assert isinstance(net.evaluate(lambda batch: net(batch["x"])[:, 0], made()), float)


@pytest.mark.parametrize(("given", "is_size"), [(1000, True), (2, True), (1, False), ("yes", False)])
def test_the_size_of_a_shuffling_buffer_is_told_that_none_is_needed(given, is_size):
    with pytest.raises(ts.OptionError, match="write True or False") as told:
        DataOptions(batch_size=4, shuffle=given)
    assert ("without a buffer of that size" in str(told.value)) is is_size
