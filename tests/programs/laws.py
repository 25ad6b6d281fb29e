# SPDX-License-Identifier: Apache-2.0
"""The laws, each a function that runs a program in real processes and returns "run", "refused", or raises what it found."""

import json
import os
from pathlib import Path

import torch
from programs.compose import Program
from support import warm

TESTS = Path(__file__).parents[1]
CLOCK = ("samples_per_second", "memory_bytes", "save_stall_seconds")


class ViolationError(AssertionError):
    """A law did not hold; its text is the program, and what was seen."""

    def __init__(self, program: Program, texts: dict[str, str], seen: str) -> None:
        files = "\n".join(f"# --- {name}\n{text}" for name, text in texts.items())
        super().__init__(f"{seen}\n\n{program!r}\n\n{files}")


def written(folder: Path, texts: dict[str, str]) -> Path:
    """Write the files of a program into a new folder, and return it."""
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text, "utf-8")
    return folder


def ran(folder: Path, *command: str):
    """Run a Python command in a folder, and return how it ended."""
    paths = os.pathsep.join(filter(None, (warm.paths(), str(TESTS))))
    return warm.run(*command, cwd=folder, env={**os.environ, "PYTHONPATH": paths}, timeout=120)


def refusal(program: Program, law: str, error: str) -> bool:
    """Return whether a program was refused in words that one of its habits expects under the law."""
    lines = [habit.words.get(f"refused under {law}") for habit in program.habits]
    return any(line and line in error for line in lines)


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


def watched_is_plain(program: Program, folder: Path) -> str:
    """Hold a run under `truestep doctor` against the run without: output, files, exit status."""
    # a run watches itself, and leaves that to a doctor around it: what it then doesn't say is another matter
    texts = program.files({"own watch": ", doctor=False"})
    plain, watched = (written(folder / name, texts) for name in ("plain", "watched"))
    report, volatile = folder / "report.json", [habit.words.get("volatile") for habit in program.habits]
    command = program.command()
    expected = ran(plain, *command)
    if expected.returncode:
        raise ViolationError(program, texts, f"the plain program failed:\n{expected.stderr}")
    options = ("--output", "json", "--report", str(report))
    found = ran(watched, "-m", "truestep", "doctor", *options, *command)
    findings = json.loads(report.read_text("utf-8"))["findings"] if report.exists() else []
    bugs = [each for each in findings if each["severity"] == "bug"]
    seen = []
    outputs = [
        (ended.stdout + ended.stderr).replace(str(place), "")
        for ended, place in ((expected, plain), (found, watched))
    ]
    if outputs[0] != outputs[1]:
        seen.append(
            f"output, plain:\n{expected.stdout}{expected.stderr}\nwatched:\n{found.stdout}{found.stderr}"
        )
    if found.returncode != (1 if bugs else 0):
        seen.append(f"exit status {found.returncode}")
    seen += [f"accused: {each}" for each in bugs if each["code"] not in program.mistakes()]
    seen += differing(left(plain, volatile), left(watched, volatile))
    if seen:
        raise ViolationError(program, texts, "\n".join(seen))
    return "run"


def plain_is_exact(program: Program, folder: Path) -> str:
    """Hold the engine, unsplit, against the loop by hand on the same batches and random streams: the same bits."""
    engine = program.with_framework("truestep").files(
        {"loss entry": "same_stream(batch)", "epoch noted": "epoch_begins()", "loss noted": "note_loss(loss)"}
    )
    by_hand = program.with_framework("plain").files(
        {"loss entry": "same_stream()", "loader": "replayed_batches()", "loss noted": "note_loss(loss)"}
    )
    sides = {"truestep": (engine, "record"), "plain": (by_hand, "replay")}
    texts = {f"{side} {name}": text for side, (files, _) in sides.items() for name, text in files.items()}
    for side, (files, driver) in sides.items():
        ended = ran(
            written(folder / side, files), "-c", f"from programs import recording; recording.{driver}()"
        )
        if ended.returncode and side == "truestep" and refusal(program, "plain", ended.stderr):
            return "refused"
        if ended.returncode:
            raise ViolationError(program, texts, f"{side} failed:\n{ended.stdout}{ended.stderr}")
    ends, losses = (
        [torch.load(folder / side / f"{name}.pt") for side in sides] for name in ("end", "losses")
    )
    rounds = any("plain rounds" in habit.words for habit in program.habits)
    within = float(program.habit("precision").words["plain within"]) if rounds else 1e-6
    for end in ends:
        end["optimizer"] = end["optimizer"]["state"]  # its options name how it is computed, fused or not
    seen = far(*losses, within) + ([] if rounds else differing(*ends))
    if seen:
        raise ViolationError(program, texts, "\n".join(seen))
    return "run"


LAWS = {"plain": plain_is_exact, "watched": watched_is_plain}
