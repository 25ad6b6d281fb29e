# SPDX-License-Identifier: Apache-2.0
"""Reads, and with --run runs, public training code, and compares with what is wrong in it.

    python benchmarks/doctor/public.py FOLDER [--run] [--only TEXT] [--seconds 120] [--jobs 2]

FOLDER holds the repositories of `repositories.json`, at those commits, each as OWNER+NAME; their code is no
part of this repository. `expected.json` says what reading by hand found. The scripts run in a copy, with
stand-ins (`standins/`, random data); what can't run is listed with its error. For each check: faults found,
faults missed, right remarks, alarms, and the places where it says that it can't tell.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from comparing import compare, unique
from running import run_all
from scripts import HERE, copy_all, of_torch, read, trains

COLUMNS = ("hit", "missed", "remark", "alarm", "can't tell")


def collect(work, truths, only):
    """Return the names of all files that use torch, or that the list speaks of."""
    paths = sorted(path for path in work.rglob("*.py") if "site-packages" not in path.parts)
    names = [(str(path.relative_to(work)), path) for path in paths]
    return [name for name, path in names if only in name and (key_of(name) in truths or of_torch(path))]


def key_of(name):
    """The scripts that were taken out of a generator are named by its line, without a suffix."""
    return name.removesuffix(".py") if "@" in name else name


def why_not(name, truths):
    return truths.get(key_of(name), {}).get("not_run")


def jobs_of(work, names, truths):
    """Return the scripts that train, with their arguments."""
    trained = [name for name in names if trains(work / name) and not why_not(name, truths)]
    return [(name, truths.get(key_of(name), {}).get("arguments", [])) for name in trained]


def show(comparison, tally, recall):
    """Print misses and alarms of one script, and count them."""
    for fault in comparison.misses:
        code = fault["codes"][0] if fault["codes"] else "no check"
        tally["missed", code] += 1
        print(f"missed  {code:9} {comparison.name}:{fault['lines'][0]}  {fault['what']}")
    for _, finding in {id(fault): (fault, finding) for fault, finding in comparison.hits}.values():
        tally["hit", finding["code"]] += 1
    for finding in comparison.remarks:
        tally["remark", finding["code"]] += 1
    for finding in comparison.alarms:
        tally["alarm", finding["code"]] += 1
        recall["alarms", finding["severity"]] += 1
        where = f"{comparison.name}:{finding['line']}"
        print(f"alarm   {finding['code']:9} {finding['severity']:8} {where}  {finding['message']}")
    faults = {id(fault) for fault, _ in comparison.hits}
    recall["found"] += len(faults)
    recall["there"] += len(faults) + len(comparison.misses)


def table(tally):
    codes = sorted({code for _, code in tally})
    print(f"\n{'check':10}", *(f"{each:>10}" for each in COLUMNS))
    for code in codes:
        print(f"{code:10}", *(f"{tally[column, code] or '.':>10}" for column in COLUMNS))
    print(f"{'all':10}", *(f"{sum(tally[column, code] for code in codes):>10}" for column in COLUMNS))


def options_of(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", action="store_true", help="run the scripts too")
    parser.add_argument("--only", default="", help="only the files with this in their path")
    parser.add_argument("--seconds", type=int, default=120, help="of processor time a script may take")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at once")
    parser.add_argument("--keep", type=Path, help="work in this folder, and leave it there")
    return parser.parse_args(arguments)


def main():
    options = options_of()
    with tempfile.TemporaryDirectory() as temporary:
        measure(copy_all(options.folder, options.keep or Path(temporary)), options)


def measure(work, options):
    truths = json.loads((HERE / "expected.json").read_text("utf-8"))["scripts"]
    names = collect(work, truths, options.only)
    document = read(work)
    jobs = jobs_of(work, names, truths) if options.run else []
    reports = run_all(work, jobs, options.seconds, options.jobs) if jobs else {}
    tally, recall = Counter(), Counter()
    for name in names:
        truth = truths.get(key_of(name), {})
        if not options.run:
            faults = [fault for fault in truth.get("faults", []) if fault.get("by") != "run"]
            truth = {**truth, "faults": faults}
        findings = [each for each in document["findings"] if each["path"] == name]
        findings += [
            each
            for each in reports.get(name, {}).get("findings", [])
            if Path(each["path"]).name == Path(name).name
        ]
        show(compare(name, truth, unique(findings)), tally, recall)
    for each in document["abstentions"]:
        if options.only in each["path"]:
            tally["can't tell", each["code"]] += 1
    table(tally)
    summary(document, reports, names, truths, recall)


def summary(document, reports, names, truths, recall):
    for name in names if reports else ():
        if reason := why_not(name, truths):
            print(f"not run: {name}: {reason}")
    for name, report in reports.items():
        if error := report["script"]["error"]:
            print(f"not run to its end: {name}: {error.splitlines()[0]}")
    for each in document["unreadable"]:
        if each["path"] in names:
            print(f"not read: {each['path']}: {each['reason']}")
    there = max(recall["there"], 1)
    clean = [name for name in names if not truths.get(key_of(name), {}).get("faults")]
    alarms = ", ".join(f"{count} {key[1]}" for key, count in recall.items() if key[0] == "alarms")
    print(f"{len(names)} files, {len(clean)} of them without a fault; {len(reports)} run")
    print(f"{recall['found']} of {recall['there']} faults found ({100 * recall['found'] / there:.0f}%)")
    print(f"alarms: {alarms or 'none'}")


if __name__ == "__main__":
    main()
