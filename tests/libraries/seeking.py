# SPDX-License-Identifier: Apache-2.0
"""`python -m libraries.seeking`: how long the first batch takes at 10 % and at 90 % of a pass, beside each library's own loader."""

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from libraries import made
from libraries.mosaicml import load_streaming
from torch.utils.data import Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

import truestep as ts
from truestep.engine.data import DataOptions, open_source

SAMPLES, BATCH, TIMES = 40_000, 64, 9
BATCHES = SAMPLES // BATCH
PLACES = [BATCHES // 10, BATCHES * 9 // 10]


class Tokens(Dataset[Any]):
    """Samples that cost a little to make."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.full((16,), number)


def first_batch(batches: Callable[[], Iterator[Any]]) -> float:
    """Return the milliseconds from asking for an iterator to its first batch: the least of a few times."""
    found = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        next(batches())
        found.append(1e3 * (time.perf_counter() - begun))
    return min(found)


def of_ours(data: Any, **options: Any) -> list[float]:
    """Return what it takes to go on in a source: one that stood there says where, as a checkpoint keeps it."""

    def opened() -> Any:
        source = open_source(data, DataOptions(batch_size=BATCH, num_workers=0, **options), seed=0)
        next(source.batches(0, 1))  # what is read once only
        return source

    found = []
    for place in PLACES:
        before = opened()
        for _ in islice(before.batches(0), place):
            pass
        state = before.state_dict()
        resumed = [opened() for _ in range(TIMES)]
        for source in resumed:
            source.load_state_dict(state)
        found.append(first_batch(lambda place=place, left=resumed: left.pop().batches(0, place)))
    return found


def of_loader(make: Callable[[], Any]) -> list[float]:
    """Return the same of a loader with a state: a new one that loads the state of one that stood there."""

    def resumed(state: Any) -> Iterator[Any]:
        loader = make()
        loader.load_state_dict(state)
        return iter(loader)

    found = []
    for place in PLACES:
        loader = make()
        for _ in islice(loader, place):
            pass
        state = loader.state_dict()
        del loader
        found.append(first_batch(lambda state=state: resumed(state)))
    return found


def row(name: str, ours: list[float], own: list[float] | None) -> None:
    """Print a row of the table."""
    cells = [
        f"{first:,.1f} / {last:,.1f} ms ({last / first:.1f})" for first, last in filter(None, (ours, own))
    ]
    print(f"| {name} | {' | '.join(cells)}{'' if own else ' | '} |", flush=True)


def main() -> None:
    """Print the table."""
    made.SAMPLES = SAMPLES
    blocks = ts.BlockShuffle(block=1000)
    print("| data | Truestep, 10 % / 90 % (ratio) | its own loader |\n|---|---|---|")
    own = of_loader(lambda: StatefulDataLoader(Tokens(), batch_size=BATCH, shuffle=True))
    row("map-style, uniform", of_ours(Tokens(), shuffle=True), own)
    row("map-style, blocks", of_ours(Tokens(), shuffle=blocks), None)
    mixture = ts.Mixture({"a": Tokens(), "b": Tokens()}, weights={"a": 0.7, "b": 0.3})
    row("mixture of two", of_ours(mixture, shuffle=True), None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made.write_mds(folder / "mds", size_limit=1 << 16)
        streaming = load_streaming()
        mosaic = streaming.StreamingDataset(local=str(folder / "mds"), batch_size=BATCH)
        row("Streaming", of_ours(mosaic, shuffle=ts.BlockShuffle()), None)
        import datasets

        table = datasets.Dataset.from_dict({"id": np.arange(SAMPLES)})
        streamed = partial(table.to_iterable_dataset, num_shards=20)
        own = of_loader(lambda: StatefulDataLoader(streamed(), batch_size=BATCH))
        row("`datasets`, iterable, its own state", of_stream(streamed), own)


def of_stream(make: Callable[[], Any]) -> list[float]:
    """Return what it takes to go on in a stream with a state, the trial of it included."""
    found = []
    for place in PLACES:
        source = open_source(make(), DataOptions(batch_size=BATCH), seed=0)
        for _ in islice(source.batches(0), place):
            pass
        state = source.state_dict()

        def resumed(state: Any = state, place: int = place) -> Iterator[Any]:
            again = open_source(make(), DataOptions(batch_size=BATCH), seed=0)
            again.load_state_dict(state)
            return again.batches(0, place)

        found.append(first_batch(resumed))
    return found


if __name__ == "__main__":
    main()
