# SPDX-License-Identifier: Apache-2.0
"""The format on disk: golden checkpoints load for ever, newer ones are no damage, shards make wholes."""

import hashlib
import json
import math
import shutil
from pathlib import Path

import pytest
import torch

from truestep.checkpoints import Checkpoint, CheckpointStore
from truestep.checkpoints.manifest import (
    MANIFEST_NAME,
    CheckpointSummary,
    Manifest,
    ManifestFile,
    ManifestTensor,
    TensorShard,
    seal_manifest,
)
from truestep.checkpoints.names import checkpoint_name
from truestep.checkpoints.safetensors_header import SafetensorsEntry, safetensors_header
from truestep.core.errors import CheckpointError

GOLDEN = sorted((Path(__file__).parent / "golden").iterdir())


def golden_state() -> dict:
    """What each of the golden checkpoints holds. For a new format: save this, and commit the folder."""
    weight = torch.arange(12.0).view(3, 4)
    return {
        "learners": {
            "net": {
                "modules": {"layer.weight": weight, "layer.tied": weight, "layer.count": torch.tensor(7)},
                "optimizers": [
                    {"state": {0: {"moment": weight.bfloat16()}}, "groups": [{"betas": (0.9, 0.99)}]}
                ],
            }
        },
        "image": torch.arange(24).view(1, 2, 3, 4).to(memory_format=torch.channels_last),
        "complex": torch.tensor([1 + 2j], dtype=torch.complex128),
        "float8": torch.tensor([0.5, -2.0]).to(torch.float8_e4m3fn),
        "empty": torch.empty(0, 3),
        "flags": torch.tensor([True, False]),
        "values": [None, True, -3, 0.1, math.inf, "ä/~", 1 << 100, {"": {}}],
    }


def same(left, right) -> bool:
    if isinstance(left, torch.Tensor):
        return (left.dtype, left.stride()) == (right.dtype, right.stride()) and torch.equal(
            left.float(), right.float()
        )
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("folder", GOLDEN, ids=lambda folder: folder.name)
def test_golden_checkpoints_load_for_ever(folder):
    checkpoint = Checkpoint.open(folder)
    assert (checkpoint.step, checkpoint.metrics["accuracy"]) == (1200, 0.5)
    assert math.isnan(checkpoint.metrics["loss"])
    loaded = checkpoint.load()
    assert same(loaded, golden_state())
    modules = loaded["learners"]["net"]["modules"]
    assert modules["layer.weight"].data_ptr() == modules["layer.tied"].data_ptr()


def edited(folder: Path, **changes) -> None:
    body = json.loads((folder / MANIFEST_NAME).read_bytes())["body"] | changes
    (folder / MANIFEST_NAME).write_bytes(seal_manifest(json.dumps(body).encode()))


@pytest.fixture
def newer(tmp_path):
    with CheckpointStore(tmp_path) as store:
        for step in (1, 2):
            store.save(step, {"step": step})
        newest = store.newest().path
    edited(newest, format=3, truestep="9.0")
    return tmp_path


def test_a_newer_format_is_refused_clearly_and_nothing_older_is_taken_instead(newer):
    with CheckpointStore(newer) as store:
        for read in (store.newest, store.resume):
            with pytest.raises(
                CheckpointError, match=r"in format 3, written by truestep 9.0.*install the newer version"
            ):
                read()


def test_a_newer_format_is_never_pruned(newer):
    with CheckpointStore(newer) as store:
        for step in (3, 4, 5):
            store.save(step, {})
        store.wait()
    assert sorted(path.name for path in newer.iterdir() if path.name[0] != ".") == [
        "000002-step-2",
        "000004-step-4",
        "000005-step-5",
    ]


def test_a_checkpoint_under_another_name_is_refused_in_a_run_and_can_be_opened_by_its_path(tmp_path):
    with CheckpointStore(tmp_path / "run") as store:
        store.save(1, {"a": 1})
        newest = store.newest().path
        shutil.copytree(newest, tmp_path / "kept")
        newest.rename(newest.with_name("000007-step-1"))
        with pytest.raises(CheckpointError, match="that of 000001-step-1, and was moved here"):
            store.newest()
    assert Checkpoint.open(tmp_path / "kept").load() == {"a": 1}


def write_sharded(
    folder: Path,
    tensor: torch.Tensor,
    boxes: list[tuple[tuple[int, int], tuple[int, int]]],
    also: dict[str, SafetensorsEntry] | None = None,
) -> Path:
    """Write a checkpoint as several processes would: each box of the tensor in a file of its own."""
    summary = CheckpointSummary(sequence=1, step=1, reason="test", healthy=True, complete=True)
    target = folder / checkpoint_name(summary)
    target.mkdir(parents=True)
    files, shards = {}, []
    for rank, (offset, shape) in enumerate(boxes):
        box = tensor[offset[0] : offset[0] + shape[0], offset[1] : offset[1] + shape[1]].contiguous()
        end = box.numel() * 4
        entries = {"w": SafetensorsEntry("F32", shape, 0, end)} | (also or {})
        data = safetensors_header(entries, {}) + box.numpy().tobytes()
        name = f"net-r{rank:04d}.safetensors"
        (target / name).write_bytes(data)
        files[name] = ManifestFile(len(data), hashlib.sha256(data).hexdigest())
        shards.append(TensorShard(file=name, key="w", begin=0, end=end, offset=offset, shape=shape))
    whole = ManifestTensor(dtype="float32", shape=tuple(tensor.shape), shards=tuple(shards))
    manifest = Manifest(
        summary=summary, files=files, tensors={"net/w": whole}, state={"dict": {"w": {"tensor": "net/w"}}}
    )
    (target / MANIFEST_NAME).write_bytes(manifest.to_bytes())
    return target


@pytest.mark.parametrize(
    ("key", "entry", "reason"),
    [
        ("more", SafetensorsEntry("F32", (0,), 80, 80), "has 'more', which the manifest does not name"),
        ("w", SafetensorsEntry("F32", (5, 4), 0, 80), "does not hold 'net/w' as"),
        ("w", SafetensorsEntry("I32", (4, 5), 0, 80), "does not hold 'net/w' as"),
    ],
)
def test_a_header_that_does_not_say_what_the_manifest_does_is_refused(key, entry, reason, tmp_path):
    folder = write_sharded(tmp_path, torch.zeros(4, 5), [((0, 0), (4, 5))], {key: entry})
    with pytest.raises(CheckpointError, match=reason):
        Checkpoint.open(folder).load()


GRID = [((0, 0), (2, 3)), ((0, 3), (2, 2)), ((2, 0), (2, 3)), ((2, 3), (2, 2))]


@pytest.mark.parametrize(
    "boxes", [GRID, [((0, 0), (1, 5)), ((1, 0), (0, 5)), ((1, 0), (3, 5))]], ids=["grid", "rows"]
)
def test_shards_of_several_processes_make_the_whole_tensor(boxes, tmp_path):
    tensor = torch.arange(20.0).view(4, 5)
    assert torch.equal(Checkpoint.open(write_sharded(tmp_path, tensor, boxes)).load()["w"], tensor)


@pytest.mark.parametrize(
    "boxes",
    [GRID[:3], [*GRID[:3], GRID[0]], [((0, 0), (4, 3)), ((0, 2), (4, 2))], []],
    ids=["one is missing", "one is there twice", "two overlap", "none"],
)
def test_shards_that_do_not_make_a_whole_are_refused(boxes, tmp_path):
    folder = write_sharded(tmp_path, torch.zeros(4, 5), boxes)
    with pytest.raises(CheckpointError, match="do not make a tensor"):
        Checkpoint.open(folder).load()
