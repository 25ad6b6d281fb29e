# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PTH103, PTH105, PTH110, PTH123, PTH208 - each way to write is meant
"""What a sealed child writes, by whatever library, it can read back, and its parent's files stay as they are."""

import importlib.machinery
import io
import os
import pickle
import shutil
import sqlite3
import sys
import tempfile
import types
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors
import torch
from doctor.experiments.test_relations import pytestmark as needs_forks

from truestep.doctor.forks.fork import run_in_sealed_child
from truestep.doctor.forks.in_memory_files import InMemoryFiles
from truestep.doctor.forks.native_writers import (
    find_modules_to_patch,
    redirect_library_writes,
    why_file_refused,
)

pytestmark = needs_forks
tokenizers = pytest.importorskip("tokenizers")
VALUES = [1.0, 2.5, -3.0]


def tensor():
    return torch.tensor(VALUES)


def by_safetensors(path):
    from safetensors.torch import load_file, save_file

    save_file({"a": tensor()}, path)
    return load_file(path)["a"]


def by_safetensors_of_numpy(path):
    from safetensors.numpy import load_file, save_file

    save_file({"a": np.array(VALUES)}, path)
    return load_file(path)["a"]


def by_safe_open(path):
    from safetensors import safe_open
    from safetensors.torch import save_file

    save_file({"a": tensor()}, path, metadata={"format": "pt"})
    with safe_open(path, framework="pt") as file:
        return file.get_tensor("a")


def by_torch(path, **how):
    torch.save({"a": tensor()}, path, **how)
    return torch.load(path)["a"]


def by_torch_mapped(path):
    torch.save({"a": tensor()}, path)
    return torch.load(str(path), mmap=True)["a"]


def by_torch_into_an_open_file(path):
    with open(path, "wb") as file:
        torch.save(tensor(), file)
    with path.open("rb") as file:
        return torch.load(file)


def by_script(path):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Parameter(tensor())

        def forward(self, x):
            return x * self.a

    with warnings.catch_warnings(action="ignore"):
        torch.jit.save(torch.jit.trace(Net(), torch.ones(3)), path)
        return torch.jit.load(io.BytesIO(path.read_bytes()))(torch.ones(3)).detach()


def by_numpy(path):
    np.savez(path.with_suffix(".npz"), a=np.array(VALUES))
    with np.load(path.with_suffix(".npz")) as found:
        return found["a"]


def by_numpy_text(path):
    np.savetxt(path, np.array(VALUES))
    return np.loadtxt(path)


def by_numpy_raw(path):
    np.array(VALUES).tofile(path)
    return np.fromfile(path)


def by_memory_map(path):
    found = np.memmap(path, dtype="float64", mode="w+", shape=3)
    found[:] = VALUES
    found.flush()
    return np.fromfile(path)


def by_pickle(path):
    with open(path, "wb") as file:
        pickle.dump(VALUES, file)
    with open(path, "rb") as file:
        return pickle.load(file)


def by_text(path):
    path.write_text("\n".join(map(str, VALUES[:2])))
    with path.open("a") as file:
        file.write(f"\n{VALUES[2]}")
    return [float(each) for each in path.read_text().splitlines()]


def by_descriptor(path):
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(opened, np.array(VALUES).tobytes())
    os.close(opened)
    return np.frombuffer(path.read_bytes())


def by_a_file_that_takes_the_place(path):
    with tempfile.NamedTemporaryFile("wb", dir=path.parent, delete=False) as file:
        file.write(np.array(VALUES).tobytes())
    os.replace(file.name, path)
    assert not os.path.exists(file.name)
    return np.frombuffer(path.read_bytes())


def by_a_copy(path):
    first = path.with_name("first")
    first.write_bytes(np.array(VALUES).tobytes())
    shutil.copy2(first, path)
    shutil.move(path, path.with_name("moved"))
    return np.frombuffer(path.with_name("moved").read_bytes())


def by_archive(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", np.array(VALUES).tobytes())
    with zipfile.ZipFile(path) as archive:
        return np.frombuffer(archive.read("a"))


def by_picture(path):
    image = pytest.importorskip("PIL.Image")
    image.new("L", (1, 1), 200).save(path.with_suffix(".png"))
    with image.open(path.with_suffix(".png")) as found:
        return VALUES if found.getpixel((0, 0)) == 200 else []


def by_figure(path):
    figure = pytest.importorskip("matplotlib.figure").Figure()
    figure.savefig(path.with_suffix(".png"))
    return VALUES if path.with_suffix(".png").stat().st_size > 100 else []


def by_table(path):
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame({"a": VALUES}).to_csv(path)
    return pandas.read_csv(path)["a"]


def by_tokenizer(path):
    tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a")).save(str(path))
    return VALUES if '"a":0' in path.read_text().replace(" ", "").replace("\n", "") else []


WRITERS = [
    by_safetensors,
    by_safetensors_of_numpy,
    by_safe_open,
    by_torch,
    lambda path: by_torch(path, _use_new_zipfile_serialization=False),
    lambda path: by_torch(str(path)),
    by_torch_mapped,
    by_torch_into_an_open_file,
    by_script,
    by_numpy,
    by_numpy_text,
    by_numpy_raw,
    by_memory_map,
    by_pickle,
    by_text,
    by_descriptor,
    by_a_file_that_takes_the_place,
    by_a_copy,
    by_archive,
    by_picture,
    by_figure,
    by_table,
    by_tokenizer,
]


def told(work, folder):
    """Return what a sealed child that keeps files tells of some work in a folder."""

    def kept():
        files = InMemoryFiles()
        files.patch_file_functions()
        redirect_library_writes(files)
        try:
            return work(folder)
        except Exception as error:
            return why_file_refused(error) or f"raised {type(error).__name__}: {error}"

    before = {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}
    find_modules_to_patch()
    outcome = run_in_sealed_child(kept)
    assert {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()} == before
    assert outcome.failure is None
    return outcome.value


def into_a_new_folder(writer):
    def work(folder):
        (folder / "new" / "deep").mkdir(parents=True)
        return [float(each) for each in writer(folder / "new" / "deep" / "file.bin")]

    return work


def over_a_file(writer):
    def work(folder):
        return [float(each) for each in writer(folder / "old.bin")]

    return work


@pytest.mark.parametrize("where", [into_a_new_folder, over_a_file])
@pytest.mark.parametrize("writer", WRITERS)
def test_what_was_written_is_read_back(writer, where, tmp_path):
    old = tmp_path / "old.bin"
    old.write_text("old" if writer is not by_text else "")

    assert told(where(writer), tmp_path) == VALUES


def names(folder):
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*"))


def test_folders_show_what_was_written_and_removed(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "1").write_text("1")

    def work(folder):
        for number in (2, 3):
            os.makedirs(folder / "run" / f"checkpoint-{number}", exist_ok=True)
            (folder / "run" / f"checkpoint-{number}" / "state").write_text("x")
        shutil.rmtree(folder / "run" / "checkpoint-2")
        (folder / "run" / "1").unlink()
        return [names(folder), sorted(os.listdir(folder / "run")), [*map(str, (folder / "run").glob("ch*"))]]

    found = ["run", "run/checkpoint-3", "run/checkpoint-3/state"]
    assert told(work, tmp_path) == [found, ["checkpoint-3"], [str(tmp_path / "run" / "checkpoint-3")]]


def test_a_name_that_is_not_there_is_missed_as_on_a_disk(tmp_path):
    def work(folder):
        missed = []
        for act in (
            lambda: (folder / "none" / "file").write_text(""),
            (folder / "none").unlink,
            lambda: os.replace(folder / "none", folder / "some"),
            lambda: shutil.rmtree(folder / "none"),
            lambda: os.listdir(folder / "none"),
            (folder / "none" / "below").mkdir,
            (folder / "none").open,
        ):
            try:
                act()
            except FileNotFoundError as error:
                missed.append(Path(error.filename).name)
        return missed

    assert told(work, tmp_path) == ["file", "none", "none", "none", "none", "below", "none"]


def by_a_database(folder):
    sqlite3.connect(folder / "new.db").execute("create table a (b)")


def by_columns(folder):
    pytest.importorskip("pyarrow.parquet").write_table(
        pytest.importorskip("pyarrow").table({"a": VALUES}), folder / "new.parquet"
    )


def by_storage(folder):
    torch.UntypedStorage.from_file(str(folder / "new.bin"), True, 8)


def by_a_words_model(folder):
    (folder / "new").mkdir()
    tokenizers.models.WordLevel({"a": 0}, unk_token="a").save(str(folder / "new"))


@pytest.mark.parametrize(
    ("writer", "name"),
    [
        (by_a_database, "sqlite3"),
        (by_columns, "pyarrow"),
        (by_storage, "`torch.Untyped"),
        (by_a_words_model, "`tokenizers.models"),
    ],
)
def test_a_writer_that_cannot_be_kept_is_named(writer, name, tmp_path):
    if writer is by_columns:
        pytest.importorskip("pyarrow.parquet")
    assert told(writer, tmp_path).startswith(f"{name}")


@pytest.mark.parametrize("of_library", [False, True])
def test_a_name_that_is_bound_behind_the_first_look_is_exchanged_too(tmp_path, monkeypatch, of_library):
    """The user's modules may bind one at any time, and a library's until it is imported to its end."""
    name = f"binds_later_{of_library}"
    later = types.ModuleType(name)
    later.__spec__ = importlib.machinery.ModuleSpec(name, None)
    later.__spec__._initializing = of_library
    later.__file__ = safetensors.__file__ if of_library else str(tmp_path / "own.py")
    monkeypatch.setitem(sys.modules, name, later)
    find_modules_to_patch()
    original = later.safe_open = safetensors.safe_open
    assert told(lambda _: later.safe_open is not original, tmp_path)
