# SPDX-License-Identifier: Apache-2.0
"""What `truestep read` says of official tutorials and of reference code, which is mostly right: each bug must be settled.

    PYTHONPATH=src python benchmarks/doctor/official.py --mirrors MIRRORS --work FOLDER [--only NAME] [--out said.jsonl]

A mirror is a git directory (MIRRORS/OWNER+NAME/repo). official.json names repositories, commits and the folders that are
read, where not all are; official.jsonl keeps what was judged by reading: a finding each,
with its verdict (true, debatable, false) and the reason. Exits with 1 on a `bug` that is new, or settled as false.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from mirrors import files_of, mirror_of, unpack

HERE = Path(__file__).resolve().parent
KEY = ("repo", "path", "cell", "line", "code")
ENDINGS = (".py", ".ipynb")
TESTS = {"test", "tests", "testing"}  # what a library tries of itself trains nothing


def read(folder):
    """Return what the command says of a folder, and its lines of Python."""
    command = [sys.executable, "-m", "truestep", "read", ".", "--json", "--no-cache", "--fail-on", "bug"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    told = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=900, check=False)
    lines = sum(path.read_bytes().count(b"\n") for path in folder.rglob("*.py") if path.is_file())
    return json.loads(told.stdout)["findings"], lines


def findings_of(source, folders, options):
    """Return the findings of one repository as rows, and its lines."""
    repo, commit = source.split("@")
    folder = options.work / repo.replace("/", "+")
    if not folder.exists():
        mirror = mirror_of(options.mirrors, repo)
        files = files_of(mirror, commit, *folders)
        wanted = [path for path in files if path.endswith(ENDINGS) and not TESTS & set(path.split("/"))]
        unpack(mirror, files, wanted, folder)
    started = time.monotonic()
    found, lines = read(folder)
    print(f"{repo}: {lines} lines, {time.monotonic() - started:.0f} s", flush=True)
    kept = ("path", "cell", "line", "code", "severity", "message")
    return [{"repo": repo, **{word: each[word] for word in kept}} for each in found], lines


def counted(rows):
    counts = Counter((row["severity"], row["code"], row.get("verdict", "unsettled")) for row in rows)
    for (severity, code, verdict), number in sorted(counts.items()):
        print(f"{severity:9}{code:11}{verdict:11}{number}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mirrors", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", default="", help="a part of the repository's name")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    kept = [json.loads(line) for line in HERE.joinpath("official.jsonl").read_text("utf-8").splitlines()]
    settled = {tuple(row[word] for word in KEY): row for row in kept}
    said, lines, failed = [], 0, []
    for source, folders in json.loads(HERE.joinpath("official.json").read_text("utf-8")).items():
        if options.only in source:
            try:
                rows, number = findings_of(source, folders, options)
            except (subprocess.SubprocessError, ValueError) as error:
                failed.append(f"{source}: {error}")
                continue
            said += rows
            lines += number
    for row in said:
        before = settled.get(tuple(row[word] for word in KEY), {})
        row |= {word: before[word] for word in ("verdict", "reason") if word in before}
    if options.out:
        options.out.write_text("".join(json.dumps(row) + "\n" for row in said), "utf-8")
    counted([row for row in said if row["severity"] in ("bug", "risk")])
    wrong = [
        row for row in said if row["severity"] == "bug" and row.get("verdict") not in ("true", "debatable")
    ]
    for row in wrong:
        print(f"{row['repo']} {row['path']}:{row['line']} {row['code']} {row['message']}")
    print(f"{lines} lines; {len(wrong)} bugs that are new or settled as false", *failed, sep="\n")
    raise SystemExit(1 if wrong or failed else 0)


if __name__ == "__main__":
    main()
