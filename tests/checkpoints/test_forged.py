# SPDX-License-Identifier: Apache-2.0
"""Whatever a file claims, with checksums that fit: it loads with the bits that are there, or a CheckpointError names the file."""

import hashlib
import io
import itertools
import json
import math
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from checkpoints.test_damage import in_a_process
from hypothesis import given, settings
from hypothesis import strategies as st
from support.manifests import sealed

import truestep as ts
from truestep.checkpoints import CheckpointStore
from truestep.checkpoints.digests import new_digest
from truestep.checkpoints.dtype_encoding import DTYPES
from truestep.checkpoints.manifest import MANIFEST_NAME, manifest_line_with_checksum
from truestep.checkpoints.safetensors_header import safetensors_entry_json

MOST_BYTES = 1 << 16  # that a forged tensor has on the disk

sizes = st.sampled_from([0, 1, 1, 2, 3, 1 << 31, 1 << 62, (1 << 63) - 1, 1 << 63, 1 << 70])
shapes = st.lists(sizes, max_size=5) | st.sampled_from([64, 65, 1000, 10_000]).map(lambda n: [1] * n)
strides = st.lists(st.sampled_from([0, 1, 2, 3, 1 << 61, 1 << 62, 1 << 63, 1 << 70]), max_size=4)
values = st.integers(0, 255)


def file_of(shape: list[int], dtype: str, fill: int, claimed: int) -> bytes:
    stored = DTYPES[dtype]
    header = json.dumps(
        {"w": safetensors_entry_json(stored.code, stored.shape(tuple(shape)), 0, claimed)}
    ).encode()
    return len(header).to_bytes(8, "little") + header + bytes([fill]) * min(claimed, MOST_BYTES)


def bytes_of(shape: list[int], dtype: str) -> int:
    return math.prod(shape) * DTYPES[dtype].element_bytes


SUMMARY = {
    **dict.fromkeys(("sequence", "step"), 1),
    **dict.fromkeys(("healthy", "complete"), True),
    **dict.fromkeys(("reason", "created"), "test"),
    "metrics": {},
}


def forge(folder: Path, entry: dict, state: object, data: bytes) -> Path:
    """Write a checkpoint of format 2 whose checksums all fit."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.safetensors").write_bytes(data)
    body = {
        "format": 2,
        **SUMMARY,
        "truestep": "test",
        "files": {"net.safetensors": {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}},
        "tensors": {"net/w": entry},
        "state": {"dict": {"net": state}},
    }
    (folder / MANIFEST_NAME).write_bytes(manifest_line_with_checksum(json.dumps(body).encode()))
    return folder


def forge_columns(folder: Path, entry: dict, state: object, data: bytes) -> Path:
    """The same in format 3."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "net.safetensors").write_bytes(data)
    digest = new_digest("blake3", data).hexdigest()
    manifest = {
        "truestep": "test",
        "head": SUMMARY
        | {"files": {"net.safetensors": {"bytes": len(data), "blake3": digest, "rows": 1, "prefix": 4}}},
        "names": [0, "net/w"],
        "dtypes": [[1, entry["dtype"]]],
        "shapes": [entry["shape"]],
        "strides": [[0, entry["stride"]]] if "stride" in entry else [],
        "keys": [],
        "pieces": [],
        "state": {"dict": {"net": state}},
    }
    (folder / MANIFEST_NAME).write_bytes(sealed(manifest))
    return folder


def result_or_error(call: Callable[[], object]) -> object:
    try:
        return call()
    except ts.CheckpointError as error:
        return error


def read(path: Path) -> object:
    """Return what a file holds, or the CheckpointError, which names it."""
    found = result_or_error(lambda: ts.read_checkpoint(path))
    assert not isinstance(found, ts.CheckpointError) or path.name in str(found)
    return found


@st.composite
def states(draw: st.DrawFn) -> object:
    """Draw a node of the tensor: as it is, seen through a view, or deep inside of containers."""
    node: dict = {"tensor": draw(st.sampled_from(["net/w", 0]))}
    if draw(st.booleans()):
        node |= {"shape": draw(shapes), "stride": draw(strides), "offset": draw(sizes)}
    for _ in range(draw(st.sampled_from([0, 0, 1, 98, 99, 100, 101, 150, 320, 330, 500]))):
        node = draw(
            st.sampled_from([[node], {"tuple": [node]}, {"dict": {"a": node}}, {"items": [[1, node]]}])
        )
    return node


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    shape=shapes,
    stride=st.none() | strides,
    dtype=st.sampled_from(sorted(DTYPES)),
    state=states(),
    fill=values,
    writes=st.sampled_from([forge, forge_columns]),
)
@pytest.mark.filterwarnings("ignore:ComplexHalf")  # torch says it once
def test_a_forged_checkpoint_loads_or_is_refused_by_name(
    tmp_path_factory, shape, stride, dtype, state, fill, writes
):
    folder = tmp_path_factory.getbasetemp() / "forged" / "000001-step-1"
    claimed = bytes_of(shape, dtype)
    shard = {"file": "net.safetensors", "key": "w", "begin": 0, "end": claimed, "offset": [0] * len(shape)}
    entry = {"dtype": dtype, "shape": shape, "shards": [{**shard, "shape": shape}]}
    entry |= {} if stride is None else {"stride": stride}
    found = read(writes(folder, entry, state, file_of(shape, dtype, fill, claimed)))
    if not isinstance(found, ts.CheckpointError) and isinstance(state, dict) and state.keys() == {"tensor"}:
        tensor = found["net"]
        assert [*tensor.shape] == shape
        assert set(tensor.contiguous().flatten().view(torch.uint8).tolist()) <= {fill}


@settings(max_examples=100, deadline=None, derandomize=True)
@given(shape=shapes, code=st.sampled_from([*DTYPES]), lie=st.sampled_from([0, 0, 0, 1, -1]), fill=values)
def test_a_forged_safetensors_file_loads_or_is_refused_by_name(tmp_path_factory, shape, code, lie, fill):
    path = tmp_path_factory.getbasetemp() / "forged.safetensors"
    path.write_bytes(file_of(shape, code, fill, max(0, bytes_of(shape, code) + lie)))
    found = read(path)
    if not isinstance(found, ts.CheckpointError):
        assert set(found["w"].contiguous().flatten().view(torch.uint8).tolist()) <= {fill}


@pytest.mark.parametrize("depth", [100, 101, 1000, 100_000])
def test_a_deep_state_is_refused_however_little_of_the_stack_is_left(depth, tmp_path):
    """Python's limit would end reading here and there, by how deep the program is that reads."""
    folder = forge(tmp_path / "000001-step-1", {"dtype": "uint8", "shape": [1], "shards": []}, None, b"")
    body = json.loads((folder / MANIFEST_NAME).read_bytes())["body"]
    text = json.dumps(body | {"tensors": {}, "files": {}, "state": "here"})
    text = text.replace('"here"', "[" * depth + "]" * depth)
    (folder / MANIFEST_NAME).write_bytes(manifest_line_with_checksum(text.encode()))
    (folder / "net.safetensors").unlink()

    def below(frames: int) -> object:
        return read(folder) if frames == 0 else below(frames - 1)

    for frames in (0, 300):
        assert isinstance(below(frames), ts.CheckpointError) == (depth > 102)


def saved(path: Path) -> dict[str, bytes]:
    torch.save({"w": torch.arange(40.0), "n": {"step": 3}}, path)
    with zipfile.ZipFile(path) as parts:
        return {part.filename: parts.read(part) for part in parts.infolist()}


def test_damaged_files_of_torch_load_the_same_or_are_refused_by_name(tmp_path):
    path, dice = tmp_path / "w.pt", random.Random(3)
    saved(path)
    sound = path.read_bytes()
    for _ in range(400):
        data = bytearray(sound)
        for _ in range(dice.choice([1, 1, 8, 100])):
            data[dice.randrange(len(data))] = dice.randrange(256)
        path.write_bytes(data[: dice.choice([len(data), len(data), dice.randrange(len(data))])])
        read(path)


@pytest.mark.parametrize("part", ["data.pkl", "data/0", "more"])
def test_a_file_that_is_larger_in_memory_than_on_the_disk_is_refused_unread(part, tmp_path):
    path = tmp_path / "bomb.pt"
    contents = saved(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as parts:
        for name, data in {**contents, "w/more": b""}.items():
            with parts.open(name, "w", force_zip64=True) as file:
                for _ in range(80 if name.endswith(part) else 0):
                    file.write(bytes(1 << 20))
                file.write(data)

    def grown_bytes() -> int:
        import resource

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert "memory" in str(read(path))
        return 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

    assert in_a_process(grown_bytes) < 64 << 20


def test_a_file_that_was_packed_again_with_compression_is_read(tmp_path):
    path = tmp_path / "packed.pt"
    contents = saved(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as parts:
        for name, data in contents.items():
            parts.writestr(name, data)
    assert torch.equal(ts.read_checkpoint(path)["w"], torch.arange(40.0))


def run_of(folder: Path, steps: list[int]) -> list[Path]:
    """Save one state of the same tensors after another: what differs are plain values, in the manifests alone."""
    with CheckpointStore(folder, background=False) as store:
        for step in steps:
            store.save(step, {"net": {"w": torch.ones(4)}, "cursor": {"step": step}})
    return sorted(path for path in folder.iterdir() if path.name[0].isdigit())


def test_a_manifest_beside_the_files_of_another_save_is_refused(tmp_path):
    folders = run_of(tmp_path / "run", [10, 20])
    for here, there in itertools.permutations(folders):
        own = (here / MANIFEST_NAME).read_bytes()
        shutil.copy(there / MANIFEST_NAME, here / MANIFEST_NAME)
        with pytest.raises(ts.CheckpointError, match=rf"{here.name} .*{there.name}"):
            ts.read_checkpoint(here)
        (here / MANIFEST_NAME).write_bytes(own)
    shutil.copy(folders[0] / MANIFEST_NAME, folders[1] / MANIFEST_NAME)
    with pytest.warns(UserWarning, match=folders[1].name):  # the newest sound one is used
        assert ts.read_checkpoint(tmp_path / "run")["cursor"] == {"step": 10}


def test_a_copy_may_be_called_anything_but_another_save(tmp_path):
    newest = run_of(tmp_path / "run", [10, 20])[-1]
    for name in ("best", "step-20", "000002-step-20 (copy)", newest.name):
        copy = shutil.copytree(newest, tmp_path / "elsewhere" / name)
        assert ts.read_checkpoint(copy)["cursor"] == {"step": 20}


PAIRS = torch.arange(8.0).view(4, 2)
WEIGHTS: dict[str, Callable[[], object]] = {
    "qint8": lambda: torch.quantize_per_tensor(PAIRS, 0.1, 0, torch.qint8),
    "quint8": lambda: torch.quantize_per_channel(PAIRS, torch.ones(4), torch.zeros(4), 0, torch.quint8),
    "meta": lambda: torch.empty(3, device="meta"),
    "sparse": PAIRS.to_sparse,
    "csr": PAIRS.to_sparse_csr,
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "complex128": lambda: torch.ones(3, dtype=torch.complex128),
    "complex32": lambda: torch.ones(3, dtype=torch.complex32),
    "float8": lambda: torch.ones(3).to(torch.float8_e4m3fnuz),
    "bits": lambda: torch.ones(3, dtype=torch.uint8).view(torch.bits8),
    "lazy": lambda: torch.nn.LazyLinear(3).weight,
    "a dict": lambda: {"a": 1},
    "conjugate": lambda: torch.tensor([1 + 2j, 3j]).conj(),
    "negated": lambda: torch.tensor([1 + 2j, 3j]).conj().imag,
    "strided": lambda: torch.arange(10.0)[::2],
    "expanded": lambda: torch.ones(1).expand(5),
    "scalar": lambda: torch.tensor(3.0),
    "parameter": lambda: torch.nn.Parameter(PAIRS),
}


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.filterwarnings("ignore")  # torch's own of prototypes
def test_exported_weights_come_back_the_same_or_are_refused_by_name(kind, suffix, tmp_path):
    weight, target = WEIGHTS[kind](), tmp_path / f"w{suffix}"
    name = "norm._extra_state" if isinstance(weight, dict) else "w"
    refused = result_or_error(lambda: ts.export_weights({name: weight}, target))
    if isinstance(refused, ts.CheckpointError):
        assert repr(name) in str(refused)
        assert not target.exists()
        assert suffix == ".safetensors" or kind in ("meta", "lazy")
    else:
        assert as_bits(ts.read_checkpoint(target)[name]) == as_bits(weight)


def as_bits(value: object) -> bytes:
    """Return a value as torch.save writes it, in one order of memory."""
    special = getattr(value, "is_nested", True) or value.is_quantized or value.layout is not torch.strided
    if not special:
        value = value.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


class Named(torch.Tensor):
    """Adds a method, and holds what any tensor holds."""


def test_a_tensor_of_a_class_that_only_adds_methods_is_written_as_a_tensor(tmp_path):
    weight = torch.arange(3.0).as_subclass(Named)
    found = ts.read_checkpoint(ts.export_weights({"w": weight}, tmp_path / "w.safetensors"))["w"]
    assert type(found) is torch.Tensor
    assert found.tolist() == [0.0, 1.0, 2.0]
