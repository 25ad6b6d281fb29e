# SPDX-License-Identifier: Apache-2.0
"""The same samples written in the form of each library: six shards of forty, each sample with its own number."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from libraries.mosaicml import load_streaming

SHARDS, SIZE = 6, 40
SAMPLES = SHARDS * SIZE
WIDTH = 3


def sample(number: int) -> dict[str, Any]:
    """Return a sample; its number is part of it, so that what was trained on can be read off a batch."""
    x = np.array([math.sin(number), math.cos(number), number / SAMPLES], dtype=np.float32)
    return {"id": np.int64(number), "x": x}


def shard(number: int) -> list[dict[str, Any]]:
    """Return the samples of a shard."""
    return [sample(each) for each in range(number * SIZE, (number + 1) * SIZE)]


def write_parquet(folder: Path) -> None:
    """Write a file a shard, each of two row groups."""
    import pyarrow as pa
    import pyarrow.parquet

    folder.mkdir(parents=True)
    for number in range(SHARDS):
        rows = shard(number)
        table = pa.table({"id": [int(row["id"]) for row in rows], "x": [row["x"].tolist() for row in rows]})
        pyarrow.parquet.write_table(table, folder / f"{number:02}.parquet", row_group_size=SIZE // 2)


def write_tar(folder: Path) -> None:
    """Write a tar file a shard, as webdataset reads them."""
    import webdataset

    folder.mkdir(parents=True)
    for number in range(SHARDS):
        with webdataset.TarWriter(str(folder / f"{number:02}.tar")) as writer:
            for row in shard(number):
                content = json.dumps({"id": int(row["id"]), "x": row["x"].tolist()})
                writer.write({"__key__": f"{int(row['id']):06}", "json": content.encode()})


def write_mds(folder: Path, size_limit: int = 1200) -> None:
    """Write shards of MosaicML Streaming: as many samples as fit into so many bytes."""
    writer_of = load_streaming().MDSWriter

    columns = {"id": "int64", "x": f"ndarray:float32:{WIDTH}"}
    with writer_of(out=str(folder), columns=columns, size_limit=size_limit) as writer:
        for number in range(SAMPLES):
            writer.write(sample(number))


def write_litdata(folder: Path) -> None:
    """Write litdata's chunks."""
    from litdata.streaming.cache import Cache

    folder.mkdir(parents=True)
    cache = Cache(str(folder), chunk_size=SIZE)
    for number in range(SAMPLES):
        row = sample(number)
        cache[number] = {"id": int(row["id"]), "x": row["x"]}
    cache.done()
    cache.merge()


def write_tokens(folder: Path) -> None:
    """Write a file of tokens, as one for a memory map."""
    folder.mkdir(parents=True)
    np.arange(SAMPLES * WIDTH, dtype=np.uint16).tofile(folder / "tokens.bin")


WRITERS = {
    "parquet": write_parquet,
    "tar": write_tar,
    "mds": write_mds,
    "litdata": write_litdata,
    "tokens": write_tokens,
}


def write_all(folder: Path) -> None:
    """Write what is not there."""
    for name, write in WRITERS.items():
        if not (folder / name).exists():
            write(folder / name)
