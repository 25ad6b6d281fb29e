# SPDX-License-Identifier: Apache-2.0
"""Runs the small scripts of drivers/ on both sides of pairs of the corpus, with the experiments of the doctor.

    PYTHONPATH=src python benchmarks/doctor/driving.py --mirrors MIRRORS --work FOLDER --only Kaixhin__ACER --out driven.jsonl

The Python files of each side are laid out below FOLDER, the driver of
the pair beside them, and `truestep doctor --preview` runs it there. What both sides say is compared by code, file and the text
of the line.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from mirrors import files_of, mirror_of, unpack

HERE = Path(__file__).parent
DRIVERS = HERE / "drivers"
MOST_SECONDS = 240


def rows(begins_with):
    """Yield the rows of the work half that have a driver and whose id begins with this."""
    for name in ("pairs", "fresh", "neutral"):
        for line in (HERE / f"corpus/work/{name}.jsonl").read_text("utf-8").splitlines():
            row = json.loads(line)
            if row["id"].startswith(begins_with) and driver_of(row["id"]):
                yield row


def driver_of(name):
    """Return the driver of a pair: its own, or the one of its repository."""
    for path in (DRIVERS / f"{name}.py", DRIVERS / f"{name.rpartition('__')[0]}.py"):
        if path.is_file():
            return path
    return None


def laid_out(row, side, mirrors, work):
    """Lay out the Python files of one side of a pair; return the folder."""
    folder = work / row["id"] / side
    if not (folder / row["path"]).is_file():
        mirror = mirror_of(mirrors, row["repo"])
        files = files_of(mirror, row["parent" if side == "bug" else "fix"])
        unpack(mirror, files, [path for path in files if path.endswith(".py")], folder)
    return folder


def doctored(row, folder, options):
    """Run the pair's driver in this folder under the doctor; return its report."""
    script = folder / "drive.py"
    script.write_text(driver_of(row["id"]).read_text("utf-8"), "utf-8")
    report = folder / "drive-report.json"
    report.unlink(missing_ok=True)
    places = [*sys.path[1:], str(HERE / "standins")]
    environment = dict(
        os.environ, PYTHONPATH=os.pathsep.join(filter(None, places)), OMP_NUM_THREADS="1", FAULTY=row["id"]
    )
    command = [sys.executable, "-m", "truestep", "doctor", "--preview", "--output", "json"]
    command += ["--report", report.name, *options, script.name]
    started = time.perf_counter()
    with (folder / "drive.log").open("w") as log:
        try:
            subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=log,
                timeout=MOST_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            log.write("\nended: too long\n")
    seconds = time.perf_counter() - started
    document = (
        json.loads(report.read_text("utf-8")) if report.is_file() else {"findings": [], "error": "no report"}
    )
    return document, round(seconds, 1)


def told(document):
    """Return the findings of a report as (code, severity, place, message)."""
    return [
        {key: each.get(key) for key in ("code", "severity", "path", "line", "message")}
        for each in document["findings"]
    ]


def same(each, folder):
    """Return what makes two findings of both sides the same: code, file and the text of the line."""
    path = folder / (each["path"] or "")
    lines = path.read_text("utf-8", "replace").splitlines() if path.is_file() else []
    number = each["line"] or 0
    return (
        each["code"],
        each["path"],
        lines[number - 1].strip() if 0 < number <= len(lines) else each["message"],
    )


def compared(row, mirrors, work, options):
    """Return one row: what the doctor says of both sides, and of the faulty one alone."""
    result = {"id": row["id"], "lines": row["lines"], "path": row["path"]}
    folders = {side: laid_out(row, side, mirrors, work) for side in ("bug", "fix")}
    for side, folder in folders.items():
        document, seconds = doctored(row, folder, options)
        experiments = document.get("experiments") or {}
        result[side] = {
            "found": told(document),
            "relations": {
                code: each["outcome"] + (f": {each['reason']}" if each["reason"] else "")
                for code, each in experiments.get("relations", {}).items()
            },
            "error": document.get("error") or (document.get("script") or {}).get("error"),
            "num_children": experiments.get("num_children"),
            "seconds": seconds,
        }
    known = {same(each, folders["fix"]) for each in result["fix"]["found"]}
    result["bug_only"] = [each for each in result["bug"]["found"] if same(each, folders["bug"]) not in known]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mirrors", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, required=True)
    options, others = parser.parse_known_args()
    for row in rows(options.only):
        result = compared(row, options.mirrors.resolve(), options.work.resolve(), others)
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
        print(row["id"], f"(path {row['path']}, lines {row['lines']})")
        for side in ("bug", "fix"):
            print(
                f"  {side}: {result[side]['seconds']} s, {result[side]['num_children']} children, error {result[side]['error']}"
            )
            for each in result[side]["found"]:
                print(
                    f"    {each['code']} {each['severity']} {each['path']}:{each['line']} {each['message']}"
                )
        print(
            "  of the faulty one alone:",
            [f"{each['code']}:{each['line']}" for each in result["bug_only"]],
            flush=True,
        )


if __name__ == "__main__":
    main()
