# SPDX-License-Identifier: Apache-2.0
"""False alarms, coverage and cost of the experiments on right programs that are drawn by number from tests/programs.

    PYTHONPATH=src:tests python benchmarks/doctor/experiments.py --first 100 --last 300 --out drawn.jsonl

Each program runs under `truestep doctor --preview --select REL` in a fork of this process, which has imported torch.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

MOST_SECONDS = 150
ENGINES = (
    "truestep",
    "truestep_with_block",
    "truestep_by_steps",
)  # their batches come from no DataLoader's hand


def programs(first, last):
    """Yield the programs of these numbers, those of the engine as plain ones where their habits can stand there."""
    from programs.draws import drawn_program
    from programs.habits import named

    plain = named("plain")
    for number in range(first, last):
        program = drawn_program(number)
        if program.habit("framework").name in ENGINES:
            if not all(plain.suits(each) for each in program.habits if each.slot != "framework"):
                continue
            program = program.with_framework("plain")
        yield number, program


def doctored(program, folder):
    """Run a program in a fork of this process; return its report, or None."""
    import truestep.cli.main

    for name, text in program.files().items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    report = Path(folder, "report-of-the-doctor.json")
    process = os.fork()
    if process == 0:
        try:
            os.chdir(folder)
            silent = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(silent, stream)
            signal.alarm(MOST_SECONDS)
            options = ["--preview", "--select", "REL", "--report", str(report), "--output", "json"]
            sys.argv = ["truestep", "doctor", *options, *program.command()]
            truestep.cli.main.main()
        finally:
            os._exit(0)
    os.waitpid(process, 0)
    return json.loads(report.read_text("utf-8")) if report.is_file() else None


def row_of(number, program, report, seconds):
    """Return what is kept of one program."""
    experiments = report["experiments"]
    return {
        "number": number,
        "program": repr(program),
        "elapsed_seconds": round(seconds, 1),
        "found": [
            {key: each[key] for key in ("code", "severity", "line", "message")} for each in report["findings"]
        ],
        "relations": {
            code: {"outcome": each["outcome"], "reason": each["reason"]}
            for code, each in experiments["relations"].items()
        },
        "num_children": experiments["num_children"],
        "child_seconds": experiments["elapsed_seconds"],
        "failures": report["failures"],
        "error": report["script"]["error"],
    }


def summary(rows):
    """Return what the rows say together."""
    tried = [each for each in rows if each["num_children"]]
    return {
        "num_programs": len(rows),
        "num_with_children": len(tried),
        "found": dict(Counter(f"{each['code']} {each['severity']}" for row in rows for each in row["found"])),
        "outcomes": {
            code: dict(Counter(row["relations"][code]["outcome"] for row in rows))
            for code in (rows[0]["relations"] if rows else ())
        },
        "share_tried_of_applicable": share_tried(rows),
        "not_tried_because": reasons(rows),
        "median_child_seconds": sorted(row["child_seconds"] for row in tried)[len(tried) // 2]
        if tried
        else None,
        "failures": sum(bool(row["failures"]) for row in rows),
    }


def share_tried(rows):
    """Return which share of the relations that apply to a program were tried, over all and for each."""
    tried, applicable = Counter(), Counter()
    for row in rows:
        for code, each in row["relations"].items():
            if each["outcome"] != "not_applicable":
                applicable[code] += 1
                tried[code] += each["outcome"] != "not_tried"
    each = {code: round(tried[code] / applicable[code], 3) for code in applicable}
    return {"all": round(sum(tried.values()) / max(1, sum(applicable.values())), 3), **each}


def reasons(rows):
    """Return why relations that apply were not tried, the most frequent first."""
    found = Counter(
        each["reason"] for row in rows for each in row["relations"].values() if each["outcome"] == "not_tried"
    )
    return dict(found.most_common(20))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--last", type=int, default=160)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    import torch

    import truestep.cli.doctor
    import truestep.doctor.report  # noqa: F401 - imported once, before the forks

    torch.set_num_threads(1)
    rows = []
    for number, program in programs(options.first, options.last):
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            report = doctored(program, folder)
        if report is None:
            print(f"{number}: no report", file=sys.stderr)
            continue
        rows.append(row_of(number, program, report, time.perf_counter() - started))
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(rows[-1]) + "\n")
    print(json.dumps(summary(rows), indent=2))


if __name__ == "__main__":
    main()
