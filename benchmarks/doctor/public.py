# SPDX-License-Identifier: Apache-2.0
"""Reads, and with --run runs, public training code, and compares with what is expected.

    python benchmarks/doctor/public.py FOLDER [--run] [--only TEXT] [--timeout 120]

FOLDER holds the repositories of `repositories.json`, at those commits, each as OWNER+NAME; their code is no
part of this repository. `expected.json` lists the findings that were read by hand and are right. Whatever
else is reported is an alarm, shown for reading; what is expected and not reported is a miss. A run uses the
stand-ins beside this file (a torchvision of random images); what still can't run is listed with its error.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
NEAR = 3
STEPS = 60


def read(folder, repository):
    ran = subprocess.run(
        [sys.executable, "-m", "truestep", "read", "--output", "json", repository],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(ran.stdout)


def run(path, repository, timeout):
    """Run a script in a copy of its folder; return its report, or why there is none."""
    with tempfile.TemporaryDirectory() as work:
        shutil.copytree(path.parent, Path(work) / "here")
        places = [str(HERE / "standins"), str(repository), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg",
        }  # fmt: skip
        command = [sys.executable, "-m", "truestep", "doctor", "--steps", str(STEPS), "--output", "json"]
        try:
            subprocess.run(
                [*command, "--report", str(Path(work) / "report.json"), path.name],
                cwd=Path(work) / "here",
                env=environment,
                capture_output=True,
                timeout=timeout,
                stdin=subprocess.DEVNULL,
                check=False,
            )
            return json.loads((Path(work) / "report.json").read_text("utf-8"))
        except subprocess.TimeoutExpired:
            return {"findings": [], "abstentions": [], "script": {"error": f"longer than {timeout} s"}}
        except OSError:
            return {"findings": [], "abstentions": [], "script": {"error": "no report"}}


def trains(path):
    return ".backward(" in path.read_text("utf-8", errors="replace")


def compare(name, findings, expected, tally):
    """Print misses and alarms of one script, and count hits by check."""
    left = [tuple(each) for each in expected]
    for finding in findings:
        code, line = finding["code"], finding["line"]
        match = next((each for each in left if each[0] == code and abs(each[1] - line) <= NEAR), None)
        if match is not None:
            left.remove(match)
            tally["hit", code] += 1
        else:
            tally["alarm", code] += 1
            print(f"alarm  {finding['severity']:8} {code}  {name}:{line}  {finding['message']}")
    for code, line in left:
        tally["miss", code] += 1
        print(f"miss            {code}  {name}:{line}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--timeout", type=int, default=120)
    options = parser.parse_args()
    expected = json.loads((HERE / "expected.json").read_text("utf-8"))["run" if options.run else "read"]
    tally, num_scripts, failed = Counter(), 0, []
    for repository in json.loads((HERE / "repositories.json").read_text("utf-8")):
        folder = options.folder / repository.replace("/", "+")
        scripts = [
            path for path in sorted(folder.rglob("*.py")) if trains(path) and options.only in str(path)
        ]
        found = {} if options.run else read(folder, ".")
        tally["abstention", "all"] += len(found.get("abstentions", []))
        for path in scripts:
            name = f"{repository}/{path.relative_to(folder)}"
            if options.run:
                report = run(path, folder, options.timeout)
                if report["script"]["error"]:
                    failed.append(f"{name}: {report['script']['error'].splitlines()[0]}")
                findings = report["findings"]
            else:
                findings = [
                    each for each in found["findings"] if each["path"] == str(path.relative_to(folder))
                ]
            num_scripts += 1
            compare(name, findings, expected.get(name, []), tally)
    for reason in failed:
        print("not run to its end:", reason)
    print(f"{num_scripts} scripts that train")
    for (kind, code), count in sorted(tally.items()):
        print(f"{kind:10} {code:9} {count}")


if __name__ == "__main__":
    main()
