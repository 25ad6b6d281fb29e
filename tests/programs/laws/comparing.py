# SPDX-License-Identifier: Apache-2.0
"""What two runs of a program left, and where it differs."""

import json
from pathlib import Path

import torch

CLOCK = ("samples_per_second", "memory_bytes", "save_stall_seconds")


def left(folder: Path, volatile=()) -> dict[str, object]:
    """Return the content of every file in a folder; of a run of Truestep's, which holds times, that of its metrics."""
    files = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    found = {}
    for path in sorted(files):
        in_run = (folder / "run") in path.parents
        name = path.relative_to(folder)
        if name.parts[0] in volatile or name.parts[:2] == ("run", "checkpoints"):  # they go by the clock
            continue
        found[str(name)] = None if in_run else path.read_bytes()
        if path.name == "metrics.jsonl" and in_run:
            found["metrics"] = [values_of(line) for line in path.read_text("utf-8").splitlines()]
    return found


def values_of(line: str) -> dict[str, object]:
    """Return what a line of metrics measured, without what depends on the clock."""
    values = json.loads(line)["values"]
    return {name: value for name, value in values.items() if name not in CLOCK}


def differing(first, second, where="") -> list[str]:
    """Return where two states differ in their bits."""
    if isinstance(first, torch.Tensor):
        same = isinstance(second, torch.Tensor) and first.dtype == second.dtype
        same = same and first.shape == second.shape
        same = same and first.layout == second.layout and torch.equal(*map(bits, (first, second)))
        return [] if same else [f"{where}: {first} and {second}"]
    if isinstance(first, dict) and isinstance(second, dict):
        if list(map(str, first)) != list(map(str, second)):
            return [f"{where}: {list(first)} and {list(second)}"]
        pairs = zip(first, second, strict=True)
        return [each for a, b in pairs for each in differing(first[a], second[b], f"{where}.{a}")]
    if isinstance(first, list | tuple) and isinstance(second, list | tuple) and len(first) == len(second):
        pairs = enumerate(zip(first, second, strict=True))
        return [each for number, (a, b) in pairs for each in differing(a, b, f"{where}[{number}]")]
    return [] if first == second or str(first) == str(second) else [f"{where}: {first} and {second}"]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's memory as bytes, so that NaN equals NaN and -0.0 does not equal 0.0."""
    return tensor.detach().to_dense().contiguous().reshape(-1).view(torch.uint8)


def far(first: list[float], second: list[float], within: float) -> list[str]:
    """Return how the losses of two runs lie apart, if by more than rounding explains."""
    same = len(first) == len(second) and all(
        abs(a - b) <= within * max(1, abs(b)) for a, b in zip(first, second, strict=True)
    )
    return [] if same else [f"losses {first} and {second}"]


def ends(folder: Path) -> dict[str, object]:
    """Return what a run ended with: all that its learners hold, what the program saved, and its lines of metrics."""
    lines = (folder / "run" / "metrics.jsonl").read_text("utf-8").splitlines()
    found = {"metrics": [(json.loads(each)["step"], values_of(each)) for each in lines]}
    for name, file in {"learners": "learners-0.pt", "end": "end.pt"}.items():
        if (folder / file).exists():
            found[name] = torch.load(folder / file)
    return found


def joined(trees: list, where: str = "") -> tuple[object, list[str]]:
    """Return what several processes hold as one has it: divided tensors put together; and where else they differ in their bits."""
    first = trees[0]
    if isinstance(first, dict) and "part" in first:
        return whole_of(trees, where)
    if isinstance(first, dict) and all(
        isinstance(each, dict) and each.keys() == first.keys() for each in trees
    ):
        members = {name: joined([each[name] for each in trees], f"{where}.{name}") for name in first}
        return {name: found for name, (found, _) in members.items()}, [
            line for _, seen in members.values() for line in seen
        ]
    if isinstance(first, list) and all(isinstance(each, list) and len(each) == len(first) for each in trees):
        members = [
            joined(list(each), f"{where}[{number}]") for number, each in enumerate(zip(*trees, strict=True))
        ]
        return [found for found, _ in members], [line for _, seen in members for line in seen]
    seen = [
        f"rank {rank}, not as rank 0, {line}"
        for rank, each in enumerate(trees)
        for line in differing(first, each, where)
    ]
    return first, seen


def whole_of(parts: list[dict], where: str) -> tuple[torch.Tensor, list[str]]:
    """Return the tensor of which each process has a part, and whether each of its numbers is on one process."""
    shape, had = parts[0]["whole"], torch.zeros(parts[0]["whole"], dtype=torch.int)
    whole = torch.zeros(shape, dtype=parts[0]["part"].dtype)
    for each in parts:
        place = tuple(
            slice(begin, begin + size) for begin, size in zip(each["from"], each["part"].shape, strict=True)
        )
        whole[place], had[place] = each["part"], had[place] + 1
    return whole, [] if bool((had == 1).all()) else [f"{where}: numbers that no process or several have"]


def apart(first, second, within: float, where="") -> list[str]:
    """Return where the numbers of two states lie apart by more than a share of the largest number in each tensor."""
    if isinstance(first, torch.Tensor) and first.dtype.is_floating_point | first.dtype.is_complex:
        largest = first.abs().max().clamp(min=1e-3) if first.numel() else 1.0
        lies = float(((first - second).abs().max() / largest) if first.numel() else 0)
        return [] if lies <= within else [f"{where}: {lies:.2e} apart, {first} and {second}"]
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        return [each for a in first for each in apart(first[a], second[a], within, f"{where}.{a}")]
    if isinstance(first, list | tuple) and isinstance(second, list | tuple) and len(first) == len(second):
        pairs = enumerate(zip(first, second, strict=True))
        return [each for number, (a, b) in pairs for each in apart(a, b, within, f"{where}[{number}]")]
    if isinstance(first, float) and isinstance(second, float):
        return (
            []
            if first == second or abs(first - second) <= within * max(1, abs(first))
            else [f"{where}: {first}, {second}"]
        )
    return differing(first, second, where)
