# SPDX-License-Identifier: Apache-2.0
"""`python -m libraries.torture SLICE`: train on each library's data, kill at drawn moments, go on, and compare; keep a tally.

Each combination is trained undisturbed and killed. How it ended:

exact     each sample of a pass came once, and the killed training ended with the same samples in each batch and the same bits
refused   an error of Truestep's own said why, before a sample was lost or repeated
said      samples were lost or repeated, and a line said so beforehand
silent    they were, or other bits came, and nothing was said
broken    an error of another kind, or no end

The tally (build/streams.json) keeps the newest outcome of each combination, its kills and what was said.
"""

import argparse
import json
import os
import random
import re
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault(
    "WARM_ALSO", "datasets webdataset litdata torchdata.stateful_dataloader libraries.sources"
)

from libraries.cases import Case, all_cases, drawn
from libraries.made import SAMPLES, write_all
from libraries.mosaicml import remove_shared_notes
from support import ranks, warm

TALLY = Path("build/streams.json")
PROGRAM = Path(__file__).parent / "training.py"
OUTCOMES = ("exact", "refused", "said", "silent", "broken")
SECONDS = 120.0  # for one start
OURS = re.compile(r"^(?:\[rank\d+\]: )?truestep\.\S*?(\w+Error): (.*)", re.MULTILINE)
SAID = ("began with the same sample", "some repeated or dropped")
WEAKER = "can't be promised"
PROMISES = ("goes on from its own state", "re-reading", WEAKER)


class Ended(NamedTuple):
    """How a combination ended, and what it was that ended it or was said."""

    outcome: str
    words: str = ""
    kills: int = 0


def start(case: Case, data: Path, folder: Path) -> list[warm.Process]:
    """Start all ranks of a training, or go on with it."""
    folder.mkdir(exist_ok=True)
    if case.source.startswith("Streaming"):
        remove_shared_notes()
    arguments = (data, folder, case.source, case.order, case.per_rank, case.workers)
    port, size = ranks.free_port(), case.ranks
    return [  # as torchrun starts them
        warm.Process(
            PROGRAM,
            *arguments,
            env=ranks.environment(
                RANK=rank,
                WORLD_SIZE=size,
                LOCAL_RANK=rank,
                LOCAL_WORLD_SIZE=size,
                MASTER_PORT=port,
                MASTER_ADDR="127.0.0.1",
            ),
        )
        for rank in range(size)
    ]


def lines(folder: Path, rank: int) -> list[Any]:
    """Return what a rank has seen, batch by batch; a line that a kill cut is none."""
    path = folder / f"seen-{rank}.jsonl"
    found = path.read_text("utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in found if line.endswith("]")]


def killed_at(processes: list[warm.Process], folder: Path, step: int, dice: random.Random) -> bool:
    """Kill one rank, and then the others, when it has come so far; return whether it lived till then."""
    rank, until = dice.randrange(len(processes)), time.monotonic() + SECONDS
    while time.monotonic() < until and all(each.poll() is None for each in processes):
        seen = lines(folder, rank)
        if seen and seen[-1][0] >= step:
            time.sleep(dice.uniform(0, 0.01))
            processes[rank].kill()
            time.sleep(dice.choice([0.0, 0.05, 0.5]))
            break
        time.sleep(0.003)
    else:
        return False
    for each in processes:
        each.kill()
    for each in processes:
        each.wait(30)
    return True


def trouble(finished: list[ranks.Finished]) -> Ended | None:
    """Return how a start ended that has failed; None of one that came to its end."""
    if not any(each.status for each in finished):
        return None
    errors = [each.error for each in finished if each.status]
    ours = [match for error in errors for match in OURS.finditer(error)]
    words = next((f"{each[1]}: {each[2]}" for each in ours if each[1] != "RankError"), "")
    return (
        Ended("refused", words)
        if words
        else Ended("broken", " | ".join(each.strip()[-500:] for each in errors))
    )


def by_step(folder: Path, case: Case) -> dict[int, list[Any]]:
    """Return of each step its epoch and each rank's samples, as they were trained on last."""
    found: dict[int, list[Any]] = {}
    for rank in range(case.ranks):
        for step, epoch, numbers in lines(folder, rank):
            found.setdefault(step, [epoch, *[None] * case.ranks])[rank + 1] = numbers
    return found


def not_once(seen: dict[int, list[Any]]) -> str:
    """Return how the samples of a pass are not all there once."""
    for epoch in sorted({each[0] for each in seen.values()}):
        parts = [part or [] for each in seen.values() if each[0] == epoch for part in each[1:]]
        count = Counter(number for part in parts for number in part)
        again, missing = sum(count.values()) - len(count), SAMPLES - len(count)
        if again or missing:
            return f"epoch {epoch}: {again} came again, {missing} are missing"
    return ""


def undisturbed(case: Case, data: Path, folder: Path) -> Ended:
    """Train to the end."""
    finished = ranks.finish(start(case, data, folder), SECONDS)
    if (failed := trouble(finished)) is not None:
        return failed
    if wrong := not_once(by_step(folder, case)):
        told = "".join(each.error for each in finished)
        words = next((each for each in SAID if each in told), "")
        return Ended("said" if words else "silent", f"{wrong}; {words}")
    return Ended("exact")


def disturbed(case: Case, data: Path, folder: Path, steps: list[int], dice: random.Random) -> Ended:
    """Train, killed at these steps, to the end."""
    done, told = 0, set()
    for step in [*steps, None]:
        processes = start(case, data, folder)
        if was_killed := step is not None and killed_at(processes, folder, step, dice):
            done += 1
        finished = ranks.finish(processes, SECONDS)
        said = "".join(each.error for each in finished)
        told |= {each for each in PROMISES if each in said}
        if was_killed:
            continue
        if (failed := trouble(finished)) is not None:
            return failed._replace(kills=done)
        if step is not None:
            break
    return Ended("exact", " and ".join(sorted(told)), done)


def compared(case: Case, whole: Path, killed: Path) -> str:
    """Return how the killed training differs from the undisturbed one."""
    one, other = by_step(whole, case), by_step(killed, case)
    if step := next(
        (step for step in sorted(one.keys() | other.keys()) if one.get(step) != other.get(step)), None
    ):
        return f"other samples in step {step}: {one.get(step)} and {other.get(step)}"
    bits = {
        json.loads((each / f"end-{rank}.json").read_text())["bits"]
        for each in (whole, killed)
        for rank in range(case.ranks)
    }
    return "" if len(bits) == 1 else f"other bits: {bits}"


def held(case: Case, dice: random.Random, steps: list[int], data: Path) -> Ended:
    """Train undisturbed and killed, and return how that ended."""
    with tempfile.TemporaryDirectory(prefix="streams.") as name:
        whole, killed = Path(name) / "whole", Path(name) / "killed"
        first = undisturbed(case, data, whole)
        if first.outcome != "exact":
            return first
        second = disturbed(case, data, killed, steps, dice)
        if second.outcome == "exact" and (wrong := compared(case, whole, killed)):
            outcome = "said" if WEAKER in second.words else "silent"
            return Ended(outcome, f"{wrong}; {second.words}", second.kills)
        return second


def tallied(path: Path, ended: dict[str, Any]) -> dict[str, Any]:
    """Put outcomes into the tally, and return all of it; kills and starts add up."""
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    for case, each in ended.items():
        before = kept.get(case, {"kills": 0, "times": 0})
        kept[case] = each | {"kills": each["kills"] + before["kills"], "times": 1 + before["times"]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept, indent=1, sort_keys=True), "utf-8")
    return kept


def table(kept: dict[str, Any]) -> str:
    """Return how the combinations of each source ended, how many were not tried, and its kills."""
    count: Counter[tuple[str, str]] = Counter()
    for case in all_cases():
        known = kept.get(str(case), {"outcome": "not tried", "kills": 0})
        count[case.source, known["outcome"]] += 1
        count[case.source, "kills"] += known["kills"]
    heads = (*OUTCOMES, "not tried", "kills")
    rows = [
        f"{name:34}" + "".join(f"{count[name, head]:>10}" for head in heads)
        for name in dict.fromkeys(case.source for case in all_cases())
    ]
    return "\n".join([f"{'source':34}" + "".join(f"{head:>10}" for head in heads), *rows])


def main() -> int:
    """Run a slice, and return whether something went wrong in silence."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("slice", type=int, help="which one: any number")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--only", default="", help="part of the name of a combination")
    parser.add_argument("--new", action="store_true", help="those that the tally has not")
    asked = parser.parse_args()
    until, bad = time.monotonic() + 60 * asked.minutes, 0
    known = json.loads(TALLY.read_text("utf-8")) if TALLY.exists() else {}
    with tempfile.TemporaryDirectory(prefix="streams.") as name:
        data = Path(name) / "data"
        write_all(data)
        for case, dice, steps in drawn(asked.slice):
            if time.monotonic() > until:
                break
            if asked.only not in str(case) or (asked.new and str(case) in known):
                continue
            begun = time.monotonic()
            ended = held(case, dice, steps, data)
            bad += ended.outcome in ("silent", "broken")
            words = ended.words if ended.outcome in ("silent", "broken") else ended.words[:200]
            seconds = time.monotonic() - begun
            print(f"{ended.outcome:8} {case} ({ended.kills} kills, {seconds:.0f} s)  {words}", flush=True)
            tallied(TALLY, {str(case): ended._asdict()})
        shutil.rmtree(data, ignore_errors=True)
    print(table(tallied(TALLY, {})))
    return bool(bad)


if __name__ == "__main__":
    raise SystemExit(main())
