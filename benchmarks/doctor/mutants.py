# SPDX-License-Identifier: Apache-2.0
"""Plants a known fault in clean training scripts and counts how many the doctor finds.

    python benchmarks/doctor/mutants.py FOLDER [--run] [--list] [--seconds 40] [--jobs 2] [--keep WORK]

FOLDER holds the repositories of `repositories.json` as OWNER+NAME; the correct trainings of `tests/doctor/clean`
are taken too. A script is a parent when reading it gives no finding of `bug` or `risk`, and `expected.json` knows
of no fault in it. A mutant counts as found when its fault is reported under one of its own codes within 3 lines.

With --run, what reading does not find is run under watch, and its parent too. What the parent's run is accused of
as well does not count as found. Apart are counted: mutants that torch itself stops with an error, which their
parents do not raise; mutants that compute what their parents do (a target whose last dimension is not 1 loses
nothing by squeeze); and mutants whose parents can't run here, or not to their end.
"""

import argparse
import json
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from mutations import Mutant, mutants
from public import key_of
from running import run_all
from scripts import HERE, copy_all

from truestep.doctor.finding import Severity
from truestep.doctor.read import read_text
from truestep.doctor.source.places import SourceTexts
from truestep.doctor.source.project import SourceProject

NEAR = 3
CLEAN = HERE.parents[1] / "tests" / "doctor" / "clean"
OWN = "truestep/clean"
COLUMNS = ("mutants", "read", "ran", "missed", "raises", "the same", "can't run")


@dataclass
class Planted:
    """A mutant of one script, and what became of it."""

    parent: str
    mutant: Mutant
    outcome: str = "missed"

    @property
    def name(self):
        return f"{self.parent.removesuffix('.py')}@@{self.mutant.mutation}.py"


def _traces_of(text):
    project = SourceProject(SourceTexts({"script.py": text}))
    project.add(text, "script.py")
    project.link()
    return project.entries.every_trace()


def parents(work, truths):
    for path in sorted(work.rglob("*.py")):
        name = str(path.relative_to(work))
        text = path.read_text("utf-8", errors="replace")
        passed_over = (
            "@@" in name or "site-packages" in path.parts or truths.get(key_of(name), {}).get("faults")
        )
        if (
            passed_over
            or ".backward(" not in text
            or ("import torch" not in text and "from torch" not in text)
        ):
            continue
        reading = read_text(text)
        if reading.unreadable or not any(trace.of("backward") for trace in _traces_of(text)):
            continue  # code in strings is not trained by this file
        if not any(each.severity in (Severity.BUG, Severity.RISK) for each in reading.findings):
            yield name, text


def is_near(code, line, mutant):
    return code in mutant.codes and any(abs(line - each) <= NEAR for each in mutant.lines)


def found_by_reading(mutant):
    return any(is_near(each.code, each.place.line, mutant) for each in read_text(mutant.text).findings)


def judge(planted, report, parent):
    """Return what a run of the mutant shows, beside a run of its parent."""
    if not parent.get("num_steps"):
        return "can't run"
    mutant = planted.mutant
    known = {(each["code"], each["line"]) for each in parent["findings"]}
    new = [
        each
        for each in report["findings"]
        if not any(each["code"] == code and abs(each["line"] - line) <= NEAR for code, line in known)
    ]
    if any(is_near(each["code"], each["line"], mutant) for each in new):
        return "ran"
    stopped = (parent["script"]["error"] or "").partition(":")[0]
    if report["script"]["error"] and not stopped:
        return "raises"
    if stopped not in ("", "KeyboardInterrupt"):  # that one is the limit of time
        return "can't run"
    warned = any("target size" in each["text"] for each in report.get("torch_warnings", []))
    return "the same" if mutant.mutation == "squeeze_the_target" and not warned else "missed"


def run(work, waiting, truths, options):
    """Run what reading did not find, each beside its parent; set the outcomes."""
    for planted in waiting:
        (work / planted.name).write_text(planted.mutant.text, "utf-8")

    def job(name, parent):
        return name, truths.get(key_of(parent), {}).get("arguments", [])

    wanted = sorted(
        {each.parent for each in waiting if not truths.get(key_of(each.parent), {}).get("not_run")}
    )
    jobs = [job(each, each) for each in wanted] + [
        job(each.name, each.parent) for each in waiting if each.parent in wanted
    ]
    reports = run_all(work, jobs, options.seconds, options.jobs)
    for planted in waiting:
        nothing = {"findings": [], "script": {"error": None}}
        planted.outcome = judge(
            planted, reports.get(planted.name, nothing), reports.get(planted.parent, nothing)
        )
    accused = [
        f"{name}:{each['line']} {each['code']} {each['message']}"
        for name in wanted
        for each in reports[name]["findings"]
        if each["severity"] == "bug"
    ]
    print(f"{len(wanted)} parents run; accused of a bug: {len(accused)}", *accused, sep="\n")


def table(all_planted):
    print(f"{'mutation':32}" + "".join(f"{each:>11}" for each in COLUMNS) + "   found of those that can be")
    for name in [*dict.fromkeys(each.mutant.mutation for each in all_planted), None]:
        mine = [each for each in all_planted if name in (None, each.mutant.mutation)]
        counts = Counter(each.outcome for each in mine) | Counter(mutants=len(mine))
        there = counts["read"] + counts["ran"] + counts["missed"]
        share = (counts["read"] + counts["ran"]) / there if there else 0.0
        print(f"{name or 'all':32}" + "".join(f"{counts[each]:11}" for each in COLUMNS) + f"   {share:.0%}")
    print(f"{len({each.parent for each in all_planted})} scripts")


def measure(work, options):
    truths = json.loads((HERE / "expected.json").read_text("utf-8"))["scripts"]
    shutil.copytree(CLEAN, work / OWN, dirs_exist_ok=True)
    all_planted = [Planted(name, mutant) for name, text in parents(work, truths) for mutant in mutants(text)]
    for planted in all_planted:
        planted.outcome = "read" if found_by_reading(planted.mutant) else "missed"
    waiting = [each for each in all_planted if each.outcome == "missed"]
    if options.run:
        run(work, waiting, truths, options)
    for planted in waiting if options.list else ():
        print(f"{planted.outcome:10} {planted.mutant.mutation}: {planted.parent}")
    table(all_planted)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", action="store_true", help="run under watch what reading does not find")
    parser.add_argument("--seconds", type=int, default=40, help="of processor time a script may take")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at once")
    parser.add_argument("--keep", type=Path, help="work in this folder, and leave it there")
    parser.add_argument(
        "--list", action="store_true", help="name what reading did not find, with its outcome"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        measure(copy_all(options.folder, options.keep or Path(temporary)), options)


if __name__ == "__main__":
    main()
