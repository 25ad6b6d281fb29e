# SPDX-License-Identifier: Apache-2.0
"""Each library's usual way to open a data set, handed to `run.data`: the table that `make streams` goes through.

A source is a function of how it is to be read; it returns the data and the options of `run.data`. What it says of itself stands
beside it: which orders it has, whether it can be read by rank, whether a pass has every sample.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from libraries.made import SAMPLES, SHARDS, SIZE, WIDTH
from libraries.mosaicml import load_streaming
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

import truestep as ts

BATCH = 16
SEED = 7


class Reading(NamedTuple):
    """How a source is read: where it lies, as which rank of how many, by how many workers, in which order."""

    folder: Path
    order: str
    per_rank: bool = False
    workers: int = 0
    rank: int = 0
    ranks: int = 1

    @property
    def sized(self) -> dict[str, Any]:
        """The options of a source that gives samples."""
        return {"batch_size": BATCH, "num_workers": self.workers, "per_rank": self.per_rank}


@dataclass(frozen=True)
class Source:
    """A way to open data, and what there is to be tried of it."""

    open: Callable[[Reading], tuple[Any, dict[str, Any]]]
    orders: tuple[str, ...]
    by_rank: bool
    """Whether it may be read by rank; of what is entered by number, `per_rank=True` is refused."""

    @property
    def by_number(self) -> bool:
        """Whether its samples can be asked for by number."""
        return "blocks" in self.orders


SOURCES: dict[str, Source] = {}
STREAM, MAP = ("in order", "buffer"), ("in order", "uniform", "blocks")


def source(name: str, orders: tuple[str, ...], *, by_rank: bool = True) -> Callable[[Any], Any]:
    """Put a function into the table."""

    def put(function: Any) -> Any:
        SOURCES[name] = Source(function, orders, by_rank)
        return function

    return put


def by_number(reading: Reading, data: Any, block: int | None = None) -> tuple[Any, dict[str, Any]]:
    """Return data that is entered by number, in the order that is asked for."""
    shuffles = {"in order": False, "uniform": True, "blocks": ts.BlockShuffle(block=block, window=2)}
    return data, {
        "batch_size": BATCH,
        "num_workers": reading.workers,
        "shuffle": shuffles[reading.order],
        **({"per_rank": True} if reading.per_rank else {}),
    }


# ---------------------------------------------------------------- Hugging Face's datasets


def parquet_files(reading: Reading) -> list[str]:
    """Return the files of the data set."""
    return [str(each) for each in sorted((reading.folder / "parquet").glob("*.parquet"))]


def hugging_face_stream(reading: Reading) -> Any:
    """Return the files as `datasets` streams them, of one rank where that is asked for."""
    import datasets
    from datasets.distributed import split_dataset_by_node

    datasets.config.SLEEP_TIME_ON_THREADS_SHUTDOWN = 0  # five seconds at the end of a pass that is shuffled
    data = datasets.IterableDataset.from_parquet(
        parquet_files(reading), cache_dir=str(reading.folder / "cache")
    )
    if reading.per_rank:
        data = split_dataset_by_node(data, rank=reading.rank, world_size=reading.ranks)
    return data.with_format("torch")


@source("datasets, map", MAP, by_rank=False)
def _(reading: Reading) -> tuple[Any, dict[str, Any]]:
    import datasets

    data = datasets.Dataset.from_parquet(parquet_files(reading), cache_dir=str(reading.folder / "cache"))
    return by_number(reading, data.with_format("torch"), SIZE)


@source("datasets, iterable", STREAM)
def _(reading: Reading) -> tuple[Any, dict[str, Any]]:
    data = hugging_face_stream(reading)
    return data.shuffle(seed=SEED, buffer_size=50) if reading.order == "buffer" else data, reading.sized


@source("datasets, interleaved", STREAM)
def _(reading: Reading) -> tuple[Any, dict[str, Any]]:
    import datasets

    whole = hugging_face_stream(reading)
    parts = [whole.filter(lambda row: row["id"] % 3 == 0), whole.filter(lambda row: row["id"] % 3 != 0)]
    if reading.order == "buffer":
        parts = [part.shuffle(seed=SEED, buffer_size=20) for part in parts]
    mixed = datasets.interleave_datasets(
        parts, probabilities=[0.4, 0.6], seed=SEED, stopping_strategy="all_exhausted_without_replacement"
    )
    return mixed, reading.sized


# ---------------------------------------------------------------- webdataset


def decoded(row: dict[str, Any]) -> dict[str, Any]:
    """Return a sample of a tar file."""
    return {"id": torch.tensor(row["json"]["id"]), "x": torch.tensor(row["json"]["x"])}


def web_stream(reading: Reading, *, seeded: bool) -> Any:
    """Return tar files as webdataset reads them; with `seeded` its orders are drawn from the epoch."""
    import webdataset as wds

    files = [str(each) for each in sorted((reading.folder / "tar").glob("*.tar"))]
    by_node = wds.split_by_node if reading.per_rank else None
    data = wds.WebDataset(
        files,
        shardshuffle=SHARDS if reading.order == "buffer" and not seeded else False,
        nodesplitter=by_node or (lambda source: source),
        detshuffle=seeded,
        seed=SEED,
    )
    if reading.order == "buffer" and not seeded:
        data = data.shuffle(50)
    return data.decode().map(decoded)


@source("webdataset", STREAM)
def _(reading: Reading) -> tuple[Any, dict[str, Any]]:
    return web_stream(reading, seeded=False), reading.sized


@source("webdataset, seeded by epoch", ("buffer",))
def _(reading: Reading) -> tuple[Any, dict[str, Any]]:
    import random

    def samples(epoch: int) -> Iterator[Any]:
        held, dice = [], random.Random(1000 * SEED + epoch)
        for row in web_stream(reading, seeded=True):
            held.append(row)
            if len(held) > 50:
                yield held.pop(dice.randrange(len(held)))
        dice.shuffle(held)
        yield from held

    return samples, reading.sized


@source("WebLoader", STREAM)
def _(reading: Reading) -> tuple[Any, dict[str, Any]]:
    import webdataset as wds

    data = web_stream(reading, seeded=False).batched(BATCH // reading.ranks, partial=True)
    loader = wds.WebLoader(data, batch_size=None, num_workers=reading.workers)
    return loader, {"per_rank": reading.per_rank}


# ---------------------------------------------------------------- MosaicML Streaming, litdata


def mosaic(reading: Reading, **more: Any) -> Any:
    """Return MosaicML's shards."""
    streaming = load_streaming()
    return streaming.StreamingDataset(local=str(reading.folder / "mds"), batch_size=BATCH, **more)


@source("Streaming", MAP, by_rank=False)
def _(reading: Reading) -> tuple[Any, dict[str, Any]]:
    return by_number(reading, mosaic(reading))


@source("Streaming, its own loop", STREAM)
def _(reading: Reading) -> tuple[Any, dict[str, Any]]:
    data = mosaic(reading, shuffle=reading.order == "buffer", shuffle_seed=SEED)
    return (lambda: data), reading.sized


def lit(reading: Reading, **more: Any) -> Any:
    """Return litdata's chunks."""
    import litdata

    return litdata.StreamingDataset(str(reading.folder / "litdata"), **more)


@source("litdata", MAP, by_rank=False)
def _(reading: Reading) -> tuple[Any, dict[str, Any]]:
    return by_number(reading, lit(reading))


@source("litdata, its own loop", STREAM)
def _(reading: Reading) -> tuple[Any, dict[str, Any]]:
    data = lit(reading, shuffle=reading.order == "buffer", seed=SEED)
    return (lambda: data), reading.sized


# ---------------------------------------------------------------- torchdata


class Windows(Dataset):
    """Windows of a file of tokens, mapped into memory."""

    def __init__(self, path: Path) -> None:
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")

    def __len__(self) -> int:
        return len(self.tokens) // WIDTH

    def __getitem__(self, number: int) -> dict[str, Any]:
        window = self.tokens[number * WIDTH : (number + 1) * WIDTH].astype(np.float32)
        return {"id": number, "x": torch.from_numpy(window / (SAMPLES * WIDTH))}


@source("memory-mapped tokens", MAP, by_rank=False)
def _(reading: Reading) -> tuple[Any, dict[str, Any]]:
    return by_number(reading, Windows(reading.folder / "tokens" / "tokens.bin"), SIZE)


@source("StatefulDataLoader over a map", ("in order", "uniform"), by_rank=False)
def _(reading: Reading) -> tuple[Any, dict[str, Any]]:
    from torchdata.stateful_dataloader import StatefulDataLoader

    data = Windows(reading.folder / "tokens" / "tokens.bin")
    shuffle = reading.order == "uniform"
    loader = StatefulDataLoader(data, batch_size=BATCH, num_workers=reading.workers, shuffle=shuffle)
    return loader, {"batch_size": BATCH, **({"per_rank": True} if reading.per_rank else {})}


@source("StatefulDataLoader over a stream", STREAM)
def _(reading: Reading) -> tuple[Any, dict[str, Any]]:
    from torchdata.stateful_dataloader import StatefulDataLoader

    data, _ = SOURCES["datasets, iterable"].open(reading)
    loader = StatefulDataLoader(data, batch_size=BATCH, num_workers=reading.workers)
    return loader, {"batch_size": BATCH, "per_rank": reading.per_rank}


# ---------------------------------------------------------------- written by hand


class Parquet(IterableDataset):
    """Row groups one after the other, as most people write it; each reader has a part of them."""

    def __init__(self, reading: Reading) -> None:
        self.files, self.epoch, self.order = parquet_files(reading), 0, reading.order
        self.rank, self.ranks = (reading.rank, reading.ranks) if reading.per_rank else (0, 1)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def groups(self) -> list[tuple[str, int]]:
        groups = [(file, group) for file in self.files for group in range(2)]
        if self.order == "buffer":
            np.random.default_rng([SEED, self.epoch]).shuffle(groups)
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        return groups[self.rank * workers + worker :: self.ranks * workers]

    def rows(self, file: str, group: int) -> list[dict[str, Any]]:
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(file) as opened:
            rows = opened.read_row_group(group, use_threads=False).to_pylist()
        return [{"id": row["id"], "x": torch.tensor(row["x"])} for row in rows]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for file, group in self.groups():
            yield from self.rows(file, group)


class ParquetWithState(Parquet):
    """Likewise, with a state: how many were read."""

    at = starts_at = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.at, self.starts_at = self.starts_at, 0
        for number, (file, group) in enumerate(self.groups()):
            first = number * SIZE // 2
            if first + SIZE // 2 <= self.at:
                continue
            for row in self.rows(file, group)[self.at - first :]:
                self.at += 1
                yield row

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.starts_at = self.at = state["at"]


@source("Parquet by hand", STREAM)
def _(reading: Reading) -> tuple[Any, dict[str, Any]]:
    return Parquet(reading), reading.sized


@source("Parquet by hand, with a state", STREAM)
def _(reading: Reading) -> tuple[Any, dict[str, Any]]:
    return ParquetWithState(reading), reading.sized


@source("DataLoader over Parquet", STREAM)
def _(reading: Reading) -> tuple[Any, dict[str, Any]]:
    loader = DataLoader(Parquet(reading), batch_size=BATCH, num_workers=reading.workers)
    return loader, {"batch_size": BATCH, "per_rank": reading.per_rank}
