# SPDX-License-Identifier: Apache-2.0
"""The format on disk: golden checkpoints load for ever, newer ones are no damage, shards make wholes."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.manifests import opened, sealed

from truestep.checkpoints import Checkpoint, CheckpointStore
from truestep.checkpoints.checkpoint_names import checkpoint_folder_name
from truestep.checkpoints.checksum import Checksum
from truestep.checkpoints.digests import NEWEST_DIGEST, hash_scheme_of_format, new_digest
from truestep.checkpoints.dtype_encoding import DTYPES
from truestep.checkpoints.manifest import (
    FORMAT,
    MANIFEST_NAME,
    CheckpointSummary,
    Manifest,
    ManifestFile,
    ManifestTensor,
    TensorShard,
    manifest_line_with_checksum,
    verified_manifest_body,
)
from truestep.checkpoints.manifest_encoding import PARTS, manifest_bytes, parse_manifest_head
from truestep.checkpoints.safetensors_header import SafetensorsEntry, safetensors_header
from truestep.checkpoints.tensor_columns import decode_tensor_columns, encode_tensor_columns
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
    (folder / MANIFEST_NAME).write_bytes(manifest_line_with_checksum(json.dumps(body).encode()))


def test_the_newest_format_has_a_golden_checkpoint_and_a_digest():
    assert [folder.name for folder in GOLDEN] == [f"format-{number + 1}" for number in range(FORMAT)]
    assert hash_scheme_of_format(FORMAT) == NEWEST_DIGEST == ("blake3", True)


@pytest.fixture
def newer(tmp_path):
    with CheckpointStore(tmp_path) as store:
        for step in (1, 2):
            store.save(step, {"step": step})
        newest = store.newest().path
    edited(newest, format=FORMAT + 1, truestep="9.0")
    return tmp_path


def test_a_newer_format_is_refused_clearly_and_nothing_older_is_taken_instead(newer):
    with CheckpointStore(newer) as store:
        for read in (store.newest, store.resume):
            with pytest.raises(
                CheckpointError, match=r"in format 4, written by truestep 9.0.*install the newer version"
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
    target = folder / checkpoint_folder_name(summary)
    target.mkdir(parents=True)
    files, shards = {}, []
    for rank, (offset, shape) in enumerate(boxes):
        box = tensor[offset[0] : offset[0] + shape[0], offset[1] : offset[1] + shape[1]].contiguous()
        end = box.numel() * 4
        entries = {"w": SafetensorsEntry("F32", shape, 0, end)} | (also or {})
        data = safetensors_header(entries, {}) + box.numpy().tobytes()
        name = f"net-r{rank:04d}.safetensors"
        (target / name).write_bytes(data)
        files[name] = ManifestFile(len(data), new_digest("blake3", data).hexdigest())
        shards.append(TensorShard(file=name, key="w", begin=0, end=end, offset=offset, shape=shape))
    whole = ManifestTensor(dtype="float32", shape=tuple(tensor.shape), shards=tuple(shards))
    manifest = Manifest(
        summary=summary, files=files, tensors={"net/w": whole}, state={"dict": {"w": {"tensor": "net/w"}}}
    )
    (target / MANIFEST_NAME).write_bytes(manifest_bytes(manifest))
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
    [GRID[:3], [*GRID[:3], GRID[0]], [((0, 0), (4, 3)), ((0, 2), (4, 2))]],
    ids=["one is missing", "one is there twice", "two overlap"],
)
def test_shards_that_do_not_make_a_whole_are_refused(boxes, tmp_path):
    folder = write_sharded(tmp_path, torch.zeros(4, 5), boxes)
    with pytest.raises(CheckpointError, match="do not make a tensor"):
        Checkpoint.open(folder).load()


def test_a_tensor_that_no_file_holds_is_refused(tmp_path):
    folder = write_sharded(tmp_path, torch.zeros(4, 5), [])
    with pytest.raises(CheckpointError, match="names the tensor 'net/w', which is not among the tensors"):
        Checkpoint.open(folder).load()


names = st.text(st.sampled_from('ab/~0ä\U0001f600"\\'), max_size=6)
shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], dict[str, ManifestTensor]]:
    """Draw what lies in some files: tensors of any name, key, shape and order, some of them in several pieces."""
    files = draw(st.lists(names.map(lambda text: f"f{text}"), unique=True, max_size=4))
    ends = dict.fromkeys(files, 0)
    tensors: dict[str, ManifestTensor] = {}
    for name in draw(st.lists(names, unique=True, max_size=12)) if files else []:
        dtype, shape = draw(st.sampled_from(sorted(DTYPES))), draw(shapes)
        rows = draw(st.integers(0, shape[0])) if shape else 0
        boxes = [((0,) * len(shape), shape)]
        if 0 < rows < (shape[0] if shape else 0) and len(files) > 1:
            rest = (0,) * (len(shape) - 1)
            boxes = [((0, *rest), (rows, *shape[1:])), ((rows, *rest), (shape[0] - rows, *shape[1:]))]
        shards = []
        for file, (offset, box) in zip(draw(st.permutations(files)), boxes, strict=False):
            begin, ends[file] = ends[file], ends[file] + math.prod(box) * DTYPES[dtype].element_bytes
            key = draw(st.sampled_from([name, name[1:], name[2:]]) | names)
            shards.append(TensorShard(file, key, begin, ends[file], offset, box))
        stride = draw(st.none() | st.just(tuple(range(len(shape)))))
        shards.sort(key=lambda shard: files.index(shard.file))
        tensors[name] = ManifestTensor(dtype, shape, tuple(shards), stride)
    return files, tensors


@settings(max_examples=60, deadline=None)
@given(table=tables())
def test_columns_come_back_as_the_tensors_that_they_were_made_of(table):
    files, tensors = table
    made = encode_tensor_columns(tensors, files)
    found, rows = decode_tensor_columns(
        {name: json.loads(text) for name, text in made.texts.items()},
        {file: made.rows_of(file) for file in files},
    )
    assert found == tensors
    assert sorted(rows) == sorted(name for name, tensor in tensors.items() for _ in tensor.shards)


def optimizer_state(count: int) -> dict:
    """What a run with AdamW keeps of so many parameters."""
    layers = ("norm", "attention.query", "mlp.in", "mlp.out")
    weights = {f"blocks.{number // 4}.{layers[number % 4]}.weight": number for number in range(count)}
    shapes = {name: (8 + number % 50, 1 + number % 7) for name, number in weights.items()}
    moments = {
        number: {"step": torch.tensor(1.0), "exp_avg": torch.ones(shape), "exp_avg_sq": torch.ones(shape)}
        for number, shape in enumerate(shapes.values())
    }
    groups = [{"lr": 0.1, "betas": (0.9, 0.999), "params": list(range(count))}]
    modules = {name: torch.ones(shape) for name, shape in shapes.items()}
    return {"learners": {"net": {"modules": modules, "optimizers": [{"state": moments, "param_groups": groups}]}}}  # fmt: skip


def test_a_manifest_takes_at_most_a_hundred_bytes_a_tensor(tmp_path):
    with CheckpointStore(tmp_path, background=False) as store:
        store.save(1, optimizer_state(250))
        newest = store.newest()
    assert len(newest.manifest.tensors) == 1000
    assert (newest.path / MANIFEST_NAME).stat().st_size <= 100 * 1000


def test_each_part_of_a_manifest_is_read_by_itself(tmp_path):
    with CheckpointStore(tmp_path, background=False) as store:
        store.save(7, optimizer_state(3))
        body = verified_manifest_body((store.newest().path / MANIFEST_NAME).read_bytes())
    end = body.index(b',"names":')
    head = parse_manifest_head(body[:end])  # of a file of which nothing else was read
    assert (head["step"], list(head["parts"])) == (7, list(PARTS))
    at = end
    for name, (size, digest) in head["parts"].items():
        at += len(f',"{name}":')
        assert new_digest("blake3", body[at : at + size]).hexdigest() == digest
        assert json.loads(body[at : at + size]) == json.loads(body)[name]
        at += size
    assert body[at:] == b"}"
    with pytest.raises(ValueError, match="head does not have the checksum"):
        parse_manifest_head(body[:end].replace(b'"step":7', b'"step":8'))


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_does_not_have_its_own_checksum_is_refused(part, tmp_path):
    """Whoever edits one and makes the outer checksum fit has not made the manifest say it."""
    with CheckpointStore(tmp_path, background=False) as store:
        store.save(7, optimizer_state(3))
        path = store.newest().path
    body = verified_manifest_body((path / MANIFEST_NAME).read_bytes())
    at = body.rindex(f',"{part}":'.encode()) + len(f',"{part}":')
    (path / MANIFEST_NAME).write_bytes(manifest_line_with_checksum(body[:at] + b" " + body[at + 1 :]))
    with pytest.raises(CheckpointError, match=f"its part '{part}' does not have the checksum in the head"):
        Checkpoint.open(path)


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("names", [0, "a", 2, "b"], "a name shares 2 characters"),
        ("names", [0, "a", 1], "zip"),
        ("names", [0, "x" * 1000, *[1000, "y"] * 11], "names are longer than a manifest can be"),
        ("dtypes", [[1 << 40, "float32"]], "are too many"),
        ("dtypes", [[1, "float33"]], "'float33' is unknown"),
        ("dtypes", [], "the columns 12 names, 0 dtypes"),
        ("shapes", [[1]], "12 dtypes and 1 shapes"),
        ("shapes", [[-1]] * 12, "-1 is no size"),
        ("shapes", [[1 << 62, 8]] * 12, "no memory holds"),
        ("strides", [[12, [1]]], "of row 12 of 12"),
        ("keys", [[3, "a"], [3, "b"]], "after row 3"),
        ("keys", [[3, 7]], "7 is no name in a file"),
        ("pieces", [[0, [4], [1]]], "no part of a tensor"),
        ("pieces", [[0, [1, 1], [1, 0]]], "exceeds its tensor"),
        ("state", {"tensor": 12}, "names row 12 of 12"),
        ("state", {"tensor": True}, "names the tensor 'True'"),
    ],
)  # fmt: skip
def test_columns_that_say_what_can_not_be_are_refused(column, value, reason, tmp_path, monkeypatch):
    monkeypatch.setattr("truestep.checkpoints.tensor_columns.MAX_MANIFEST_BYTES", 10_000)
    with CheckpointStore(tmp_path, background=False) as store:
        store.save(7, optimizer_state(3))
        path = store.newest().path
    manifest = opened((path / MANIFEST_NAME).read_bytes()) | {column: value}
    (path / MANIFEST_NAME).write_bytes(sealed(manifest))
    with pytest.raises(CheckpointError, match=reason):
        Checkpoint.open(path).load()


@pytest.mark.parametrize("size", [0, 1, 100, 8 << 20, (8 << 20) + 1, 20 << 20])
@pytest.mark.parametrize("number", range(1, FORMAT + 1))
def test_a_checksum_is_that_of_its_format(number, size):
    kind, data = hash_scheme_of_format(number), bytes(size)
    with Checksum(kind=kind) as checksum:
        checksum.update(memoryview(data))
        found = checksum.hexdigest()
    pieces = [data[at : at + (8 << 20)] for at in range(0, size, 8 << 20)]
    if kind.in_pieces and len(pieces) > 1:
        data = b"".join(new_digest(kind.name, piece).digest() for piece in pieces)
    assert found == new_digest(kind.name, data).hexdigest()
