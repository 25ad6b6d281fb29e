# SPDX-License-Identifier: Apache-2.0
"""A hundred thousand ways in which a checkpoint is not what was written, and what a reader makes of them."""

import json
import os
import pickle
import random
import resource
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from support.manifests import opened, sealed

from torture.parts import let_write, piece
from truestep.checkpoints import Checkpoint, CheckpointStore
from truestep.checkpoints.digests import new_digest
from truestep.checkpoints.manifest import MANIFEST_NAME, manifest_line_with_checksum, verified_manifest_body
from truestep.checkpoints.tensor_columns import COLUMNS, compact_json
from truestep.core.errors import CheckpointError

Content = (
    bytes | str | None
)  # bytes of a file, the target of a link, or "<folder>", "<fifo>"; None: it is not there
Contents = dict[str, Content]
Dice = random.Random
RAN = Path("/tmp/truestep-torture-code-was-run")


class Evil:
    """What a pickle would run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return RAN.touch, ()


def make(folder: Path, seed: int) -> Path:
    """Write a sound checkpoint, one tensor of which two processes had a piece each, and return its folder."""
    generator = torch.Generator().manual_seed(seed)
    net = {"a": torch.randn(40, 30, generator=generator), "b": torch.zeros(7, dtype=torch.bool)}
    moment = torch.randn(40, 30, generator=generator)
    here, there = (
        {"state": {0: {"moment": piece(moment, rows, slice(0, 30)), "step": 3}}}
        for rows in (slice(0, 25), slice(25, 40))
    )
    state = {
        "learners": {"net": {"modules": net, "optimizers": [here]}},
        "rng": torch.arange(9) + seed,
        "lr": 0.1,
    }
    with CheckpointStore(folder) as store:
        let_write(store, [{"learners": {"net": {"optimizers": [there]}}}])
        store.save(5, state, metrics={"loss": 0.5})
        return store.newest().path


def read(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


# --- damage as disks, copies and programs do it
# -----------------------------------------------------------------


def _some(dice: Dice, sound: dict[str, bytes]) -> str:
    return dice.choice(sorted(sound))


def flip_a_bit(dice: Dice, sound: dict[str, bytes], other: dict[str, bytes]) -> Contents:
    name = _some(dice, sound)
    data = bytearray(sound[name])
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    return {name: bytes(data)}


def scramble_a_stretch(dice: Dice, sound: dict[str, bytes], other: dict[str, bytes]) -> Contents:
    name = _some(dice, sound)
    data = bytearray(sound[name])
    start = dice.randrange(len(data))
    noise = dice.randbytes(dice.randint(1, 600))
    data[start : start + len(noise)] = noise[: len(data) - start]
    return {name: bytes(data)}


def cut_off(dice: Dice, sound: dict[str, bytes], other: dict[str, bytes]) -> Contents:
    name = _some(dice, sound)
    at = dice.choice([dice.randrange(len(sound[name])), dice.randrange(0, len(sound[name]), 512)])
    return {name: sound[name][:at]}


def append(dice: Dice, sound: dict[str, bytes], other: dict[str, bytes]) -> Contents:
    name = _some(dice, sound)
    return {name: sound[name] + dice.choice([b"\0", b"\n", b" ", dice.randbytes(100), sound[name]])}


def zero_a_page(dice: Dice, sound: dict[str, bytes], other: dict[str, bytes]) -> Contents:
    name = _some(dice, sound)
    size = dice.choice([512, 4096])
    start = dice.randrange(0, len(sound[name]), size)
    return {
        name: sound[name][:start]
        + bytes(len(sound[name][start : start + size]))
        + sound[name][start + size :]
    }


def move_a_stretch(dice: Dice, sound: dict[str, bytes], other: dict[str, bytes]) -> Contents:
    name = _some(dice, sound)
    data, size = sound[name], dice.randint(1, 64)
    a, b = dice.randrange(len(data)), dice.randrange(len(data))
    piece = data[a : a + size]
    return {name: (data[:b] + piece + data[b + len(piece) :])[: len(data)]}


def swap_two_files(dice: Dice, sound: dict[str, bytes], other: dict[str, bytes]) -> Contents:
    a, b = dice.sample(sorted(sound), 2)
    return {a: sound[b], b: sound[a]}


def take_from_another(dice: Dice, sound: dict[str, bytes], other: dict[str, bytes]) -> Contents:
    names = dice.sample(sorted(sound), dice.randrange(1, len(sound)))
    return {name: other[name] for name in names}


def lose_files(dice: Dice, sound: dict[str, bytes], other: dict[str, bytes]) -> Contents:
    return dict.fromkeys(dice.sample(sorted(sound), dice.randint(1, len(sound))), None)


def add_a_foreign_file(dice: Dice, sound: dict[str, bytes], other: dict[str, bytes]) -> Contents:
    name = dice.choice(["data.pkl", "evil.pt", "more.safetensors", "__init__.py", "manifest.json.bak"])
    return {name: dice.choice([pickle.dumps(Evil()), dice.randbytes(50), next(iter(sound.values()))])}


def replace_by_a_link(dice: Dice, sound: dict[str, bytes], other: dict[str, bytes]) -> Contents:
    name = _some(dice, sound)
    return {name: dice.choice(["/etc/passwd", f"../copy/{name}", "nowhere", name, "/dev/zero"])}


def replace_by_no_file(dice: Dice, sound: dict[str, bytes], other: dict[str, bytes]) -> Contents:
    return {_some(dice, sound): dice.choice(["<folder>", "<fifo>"])}


def replace_by_a_pickle(dice: Dice, sound: dict[str, bytes], other: dict[str, bytes]) -> Contents:
    return {_some(dice, sound): pickle.dumps(Evil(), protocol=dice.randrange(6))}


# --- damage by someone who also makes the checksums fit
# -----------------------------------------------------------


def _resealed(
    sound: dict[str, bytes], edit: Callable[[dict[str, Any]], Any], files: Contents | None = None
) -> Contents:
    """Edit what a manifest says, and make all checksums fit; an edit may return the bytes of a body instead."""
    manifest = opened(sound[MANIFEST_NAME])
    for name, data in (files or {}).items():
        assert isinstance(data, bytes)
        manifest["head"]["files"][name] |= {
            "bytes": len(data),
            "blake3": new_digest("blake3", data).hexdigest(),
        }
    body = edit(manifest)
    return {
        MANIFEST_NAME: sealed(manifest) if body is None else manifest_line_with_checksum(body),
        **(files or {}),
    }


def name_a_file_elsewhere(dice: Dice, sound: dict[str, bytes], other: dict[str, bytes]) -> Contents:
    evil = dice.choice(
        ["../copy/x", "/etc/passwd", "..", ".", "", "a/b", "a\\b", "a\0b", MANIFEST_NAME, "../" * 50]
    )

    def edit(manifest: dict[str, Any]) -> None:
        files = manifest["head"]["files"]
        old = dice.choice(sorted(files))
        manifest["head"]["files"] = {evil if name == old else name: entry for name, entry in files.items()}

    return _resealed(sound, edit)


def break_a_tensor(dice: Dice, sound: dict[str, bytes], other: dict[str, bytes]) -> Contents:
    def edit(manifest: dict[str, Any]) -> None:
        names, dtypes, shapes, strides, keys, pieces = (manifest[column] for column in COLUMNS)
        row, run, part = (dice.randrange(len(column)) for column in (shapes, dtypes, pieces))
        file = dice.choice(list(manifest["head"]["files"].values()))
        damages: list[Callable[[], Any]] = [
            lambda: dtypes[run].__setitem__(
                1, dice.choice(["float33", "object", "", None, 3, "complex128", "uint8x"])
            ),
            lambda: dtypes[run].__setitem__(0, dice.choice([dtypes[run][0] + 1, 0, -1, 1 << 40, "1", None])),
            lambda: shapes.__setitem__(row, dice.choice([[1 << 40], [-1], [40, 31], [], "x", None, [2.5]])),
            lambda: shapes.append([7]),
            lambda: pieces[part].__setitem__(2, [dice.choice([1, -1, 1 << 60])] * 2),
            lambda: pieces[part].__setitem__(1, dice.choice([[1 << 40] * 2, [40], None, [41, 30]])),
            lambda: pieces.append(dice.choice([pieces[0], [row], {}, "x"])),
            lambda: keys.append([row, dice.choice(["nobody", "", None, "__metadata__"])]),
            lambda: strides.append([row, dice.choice([[1 << 40] * 2, [0, 0], [7, 7], "x", [1, 2, 3]])]),
            lambda: names.__setitem__(2 * row, dice.choice([1 << 20, -1, None, "0"])),
            lambda: names.__setitem__(2 * row + 1, dice.choice(["nobody", None, 7])),
            lambda: file.update(rows=dice.choice([file["rows"] + 1, -1, 1 << 62, "0", None])),
            lambda: file.update(prefix=dice.choice([file["prefix"] + 1, 1 << 62, "0", None])),
        ]
        dice.choice(damages)()

    return _resealed(sound, edit)


def break_the_tree(dice: Dice, sound: dict[str, bytes], other: dict[str, bytes]) -> Contents:
    view = {"shape": [40], "stride": [1 << 50], "offset": 0}
    bad = dice.choice(
        [
            {"tensor": "nobody"},
            {"tensor": dice.choice([-1, 1 << 40, True, 1.0, None])},
            {"exec": "print(1)"},
            {"dict": []},
            {"items": [[[1], 2]]},
            {"float": "1e9"},
            {},
            {"tensor": "rng", **view},
            {"tensor": 0, **view},
            {"tensor": "rng", "shape": [1 << 40], "stride": [0], "offset": -1},
            {"tensor": ["rng"]},
            "nested",
        ]
    )

    def edit(manifest: dict[str, Any]) -> None:
        manifest["state"]["dict"].update(more=bad)
        text = compact_json(manifest["state"])
        manifest["state"] = text.replace(b'"nested"', b"[" * 3000 + b"0" + b"]" * 3000)

    return _resealed(sound, edit)


def break_the_manifest(dice: Dice, sound: dict[str, bytes], other: dict[str, bytes]) -> Contents:
    whole = json.loads(verified_manifest_body(sound[MANIFEST_NAME]))

    def edit(manifest: dict[str, Any]) -> bytes | None:
        key = dice.choice(["sequence", "step", "files", "healthy", "reason", "metrics"])
        part = dice.choice([*COLUMNS, "state", "head"])
        damages: list[Callable[[], bytes | None]] = [
            lambda: manifest["head"].__delitem__(key),
            lambda: manifest["head"].update({key: dice.choice([[], 1.5, [[]]])}),
            lambda: b"{}" if part == "head" else manifest.__delitem__(part),
            lambda: manifest.update({part: dice.choice([7, 1.5, "x"])}) if part != "head" else b"{}",
            lambda: manifest.update(more=[1]),
            lambda: compact_json(whole | {"format": dice.choice([0, -1, 99, "1", None, 1.0, True, 1, 2])}),
            lambda: compact_json(whole | {part: [1]}),
            lambda: compact_json(whole) + b" ",
            lambda: b"[" * 100_000,
            lambda: dice.randbytes(200),
            lambda: b"null",
            lambda: b'{"format": 1e999}',
            lambda: b'{"format": ' + b"9" * 5000 + b"}",
            lambda: pickle.dumps(Evil()),
        ]
        return dice.choice(damages)()

    return _resealed(sound, edit)


def break_a_header(dice: Dice, sound: dict[str, bytes], other: dict[str, bytes]) -> Contents:
    name = dice.choice([name for name in sorted(sound) if name != MANIFEST_NAME])
    data = sound[name]
    length = int.from_bytes(data[:8], "little")
    header, rest = data[8 : 8 + length], data[8 + length :]
    text = json.loads(header)
    key = dice.choice([key for key in text if key != "__metadata__"])
    claimed = dice.choice([0, 1, length - 1, length + 64, 1 << 31, (1 << 63) - 1, (1 << 64) - 1])
    edits: list[Callable[[], bytes]] = [
        lambda: claimed.to_bytes(8, "little") + header + rest,
        lambda: _with_header({**text, key: {**text[key], "dtype": dice.choice(["F64", "X", 3])}}, rest),
        lambda: _with_header({**text, key: {**text[key], "data_offsets": [0, 1 << 60]}}, rest),
        lambda: _with_header({**text, key: {**text[key], "data_offsets": [5, 3]}}, rest),
        lambda: _with_header({**text, key: {**text[key], "shape": [1 << 60]}}, rest),
        lambda: _with_header({k: v for k, v in text.items() if k != key}, rest),
        lambda: _with_header(b"[" * 50_000, rest),
        lambda: _with_header(b"{" + b'"a":' * 20_000, rest),
        lambda: pickle.dumps(Evil()),
        lambda: b"",
    ]
    return _resealed(sound, lambda _: None, {name: dice.choice(edits)()})


def _with_header(header: Any, rest: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + rest


DAMAGES = [
    *([flip_a_bit] * 4),
    scramble_a_stretch,
    cut_off,
    append,
    zero_a_page,
    move_a_stretch,
    swap_two_files,
    take_from_another,
    lose_files,
    add_a_foreign_file,
    replace_by_a_link,
    replace_by_no_file,
    replace_by_a_pickle,
    name_a_file_elsewhere,
    break_a_tensor,
    break_the_tree,
    break_the_manifest,
    break_a_header,
]


@dataclass
class Verdicts:
    """What a reader made of damaged checkpoints."""

    refused: Counter = field(default_factory=Counter)
    loaded: Counter = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)
    ran_code: list[str] = field(default_factory=list)
    memory_grown_bytes: int = 0


FORBIDDEN = (
    "exec",
    "compile",
    "import",
    "pickle.find_class",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "subprocess.Popen",
    "ctypes.dlopen",
    "marshal.loads",
    "socket.connect",
    "os.remove",
    "os.rename",
)


def torture(folder: Path, count: int, seed: int = 0) -> Verdicts:
    """Damage a checkpoint in `count` ways and try to load each. Leaves an audit hook behind."""
    dice = Dice(seed)
    target = make(folder / "sound", 1)
    sound, other = read(target), read(make(folder / "other", 2))
    shutil.copytree(target, folder / "sound" / "copy")
    verdicts = Verdicts()
    Checkpoint.open(target).load()  # imports what loading needs
    watching = False

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event.startswith(FORBIDDEN):
            verdicts.ran_code.append(f"{event} {arguments}"[:200])

    sys.addaudithook(hook)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(count):
        damage = dice.choice(DAMAGES)
        contents = damage(dice, sound, other)
        if all(sound.get(name) == data for name, data in contents.items()):
            continue  # it changed nothing: a page of zeros was zero
        _put(target, contents)
        watching = True
        _judge(target, damage.__name__, verdicts)
        watching = False
        _put(target, {name: sound.get(name) for name in contents})
    verdicts.memory_grown_bytes = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    if RAN.exists():
        verdicts.ran_code.append("a pickle")
    Checkpoint.open(target).load()
    return verdicts


# a refusal names the file, or what is too new
REASONS = (MANIFEST_NAME, ".safetensors", "data.pkl", "evil.pt", "__init__.py", "in format 99")


def _judge(target: Path, damage: str, verdicts: Verdicts) -> None:
    try:
        Checkpoint.open(target).load()
    except CheckpointError as error:
        verdicts.refused[damage] += 1
        if not any(name in str(error) for name in REASONS):
            verdicts.unexplained.append(f"{damage}: {error}")
    except Exception as error:  # a reader must not fail in any other way
        verdicts.unexplained.append(f"{damage}: {error!r}")
    else:
        verdicts.loaded[damage] += 1


def _put(folder: Path, contents: Contents) -> None:
    for name, data in contents.items():
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        if isinstance(data, bytes):
            path.write_bytes(data)
        elif data == "<folder>":
            path.mkdir()
        elif data == "<fifo>":
            os.mkfifo(path)
        elif data is not None:
            path.symlink_to(data)
