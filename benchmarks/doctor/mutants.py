# SPDX-License-Identifier: Apache-2.0
"""Plants a known fault in clean training scripts and counts how many the doctor finds.

    python benchmarks/doctor/mutants.py FOLDER [FOLDER ...] [--run] [--list]

Each FOLDER holds repositories of `repositories.json` as OWNER+NAME, or scripts. A script is a parent when
reading it gives no finding of `bug` or `risk`; a mutant counts as found when its fault is reported under its
own code within 3 lines. With --run, what reading does not find is run under watch for 40 steps, and its
parent too: a mutation that the parent's run is accused of as well, or that never comes to run, does not count.
"""

import argparse
from collections import Counter
from pathlib import Path

from mutations import mutants
from public import run

from truestep.doctor.finding import Severity
from truestep.doctor.read import read_text
from truestep.doctor.source.module import SourceModule

NEAR = 3


def parents(folder):
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text("utf-8", errors="replace")
        if ".backward(" not in text or ("import torch" not in text and "from torch" not in text):
            continue
        reading = read_text(text)
        if reading.unreadable or not any(trace.of("backward") for trace in SourceModule(text).traces):
            continue  # code in strings is not trained by this file
        clean = not any(each.severity in (Severity.BUG, Severity.RISK) for each in reading.findings)
        if clean:
            yield path, text


def repository_of(path, folder):
    inside = path.relative_to(folder).parts
    return folder / inside[0] if len(inside) > 1 else folder


def is_near(code, line, mutant):
    return code in mutant.codes and any(abs(line - each) <= NEAR for each in mutant.lines)


def found_by_reading(mutant):
    return any(is_near(each.code, each.place.line, mutant) for each in read_text(mutant.text).findings)


def found_by_running(mutant, path, repository, timeout):
    """Return whether a run shows the fault, or None where the script does not get as far as an optimizer's step."""
    report = run(path, repository, timeout, text=mutant.text)
    if any(is_near(each["code"], each["line"], mutant) for each in report["findings"]):
        return True
    return False if report.get("num_steps") else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--run", action="store_true", help="run under watch what reading does not find")
    parser.add_argument("--timeout", type=int, default=120)
    parser.add_argument("--list", action="store_true", help="name the mutants that were missed")
    options = parser.parse_args()
    made, by_reading, by_running, not_run, used = Counter(), Counter(), Counter(), Counter(), set()
    for folder in options.folders:
        for path, text in parents(folder):
            for mutant in mutants(text):
                name = mutant.mutation
                made[name] += 1
                used.add(path)
                if found_by_reading(mutant):
                    by_reading[name] += 1
                    continue
                outcome = False
                if options.run:
                    outcome = found_by_running(mutant, path, repository_of(path, folder), options.timeout)
                    by_running[name] += outcome is True
                    not_run[name] += outcome is None
                if options.list and not outcome:
                    print(
                        f"{'not run' if outcome is None else 'missed '} {name}: {path.relative_to(folder)}",
                        flush=True,
                    )
    print(f"{'mutation':32} mutants  read  also by running  can't run")
    for name in [*made, None]:
        counts = [
            sum(each.values()) if name is None else each[name]
            for each in (made, by_reading, by_running, not_run)
        ]
        share = (counts[1] + counts[2]) / counts[0] if counts[0] else 0.0
        print(f"{name or 'all':32} {counts[0]:7} {counts[1]:5} {counts[2]:16} {counts[3]:10}  ({share:.0%})")
    print(f"{len(used)} scripts")


if __name__ == "__main__":
    main()
