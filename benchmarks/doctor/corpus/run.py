# SPDX-License-Identifier: Apache-2.0
"""Measure a reader of training code on the corpus: pairs (named or not) and ordinary code (findings per 1,000 lines).

    python run.py --half work --mirrors FOLDER --tree CHECKOUT --beside BIN --out NAME

A list row names a repository and commits; its mirror is MIRRORS/owner+name/repo (or .../repo/.git). What is absent is
named and left out. A pair is named if the buggy tree has a finding of severity bug or risk in the row's file within
10 lines of a listed line, and the fixed tree has no finding of that code within 3 lines of where that line went.
With --pairs LIST in the place of --half another list of pairs is read: work/fresh.jsonl.
"""

import argparse
import bisect
import datetime as dt
import difflib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from mirrors import files_of, git, mirror_of, unpack

HERE = Path(__file__).parent
NEAR = 10
STAYED = 3
WHOLE_UP_TO = 60_000  # lines; of a larger repository the top folder that holds the file is read
MOST_HELD_RUNS = 4
SEVERITIES = {"bug", "risk", "advice", "question"}
SKIPPED = re.compile(
    r"(^|/)(tests?|docs?|unittests?|third_party)/|(^|/)(test_[^/]*|[^/]*_test|conftest|setup)\.py$"
)


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def python_files(directory: Path, commit: str) -> dict[str, tuple[str, int]]:
    return {path: each for path, each in files_of(directory, commit).items() if path.endswith(".py")}


def scope(files: dict, path: str) -> list[str]:
    """The file's project: the whole repository, or the folder above the file that is small enough to be read."""
    sizes = {name: size / 38 for name, (_, size) in files.items()}  # 38 bytes in a line, on average
    chosen, prefix = list(files), ""
    for part in path.split("/")[:-1]:
        if sum(sizes[name] for name in chosen) <= WHOLE_UP_TO:
            break
        prefix += part + "/"
        chosen = [name for name in files if name.startswith(prefix)]
    return chosen


def read(options: argparse.Namespace, folder: Path) -> dict:
    """What `truestep read` reports on the folder, or why it did not."""
    started = time.perf_counter()
    environment = {
        **os.environ,
        "PYTHONPATH": str(options.tree / "src"),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
    }
    command = [options.python, "-P", "-m", "truestep", "read", str(folder), "--output", "json"]
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, env=environment, timeout=options.timeout, cwd=folder
        )
        report = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, json.JSONDecodeError) as error:
        report = {"findings": [], "failures": [f"{type(error).__name__}"], "broken": True}
    report["seconds"] = time.perf_counter() - started
    return report


def beside(options: argparse.Namespace, tool: str, files: list[Path]) -> list[tuple[str, int, str]]:
    """Findings of ruff or TorchFix as (path, line, code)."""
    if not files or not options.beside:
        return []
    if tool == "ruff":
        command = [
            options.beside / "ruff",
            "check",
            "--isolated",
            "--no-cache",
            "--output-format=concise",
            "--quiet",
            "--select=E,F,W,B,PL,RUF,NPY,A,SIM,RET,ARG",
            "--ignore=E501",
            *files,
        ]
    else:
        command = [options.beside / "torchfix", "--select=ALL", "--show-stderr", *files]
    try:
        done = subprocess.run(
            [str(part) for part in command],
            capture_output=True,
            text=True,
            check=False,
            timeout=10 * options.timeout,
        )
    except subprocess.TimeoutExpired:
        print(f"{tool} did not end in time: its column is empty")
        return []
    found = re.findall(r"^(.+?\.py):(\d+):(?:\d+:)? \[?\*?\]? ?([A-Z]+\d+)", done.stdout, re.M)
    return [(path, int(line), code) for path, line, code in found]


def where_to(before: list[str], after: list[str]) -> list[int]:
    """For each line of the buggy file (from 1) its line in the fixed one, or the nearest."""
    moved = [0] * (len(before) + 2)
    for tag, i, j, k, m in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        for offset in range(j - i):
            moved[i + offset + 1] = k + 1 + (offset if tag == "equal" else min(offset, max(m - k - 1, 0)))
    return moved


def named(
    row: dict, buggy: list[tuple[int, str]], fixed: list[tuple[int, str]], moved: list[int]
) -> list[tuple]:
    """Findings near the listed lines that are gone on the fixed version, as (line, code)."""
    stays: dict[str, list[int]] = {}
    for line, code in sorted(fixed):
        stays.setdefault(code, []).append(line)
    hits = []
    for line, code in buggy:
        if min(abs(line - listed) for listed in row["lines"]) > NEAR:
            continue
        expected = moved[line] if line < len(moved) else line
        others = stays.get(code, [])
        at = bisect.bisect_left(others, expected - STAYED)
        if at >= len(others) or others[at] > expected + STAYED:
            hits.append((line, code))
    return hits


def of_file(report: dict, folder: Path, path: str, severities: set[str]) -> list[tuple[int, str, str]]:
    target = str(folder / path)
    return [
        (f["line"], f["code"], f["severity"])
        for f in report["findings"]
        if f["severity"] in severities and (f["path"] == target or f["path"] == path)
    ]


def one_pair(options: argparse.Namespace, row: dict, directory: Path, into: Path) -> dict:
    result = {"id": row["id"], "repo": row["repo"]}
    reports, texts = {}, {}
    for side, commit in (("buggy", row["parent"]), ("fixed", row["fix"])):
        folder = into / side
        folder.mkdir(parents=True)
        near = side == "fixed" and any(
            min(abs(line - listed) for listed in row["lines"]) <= NEAR
            for line, *_ in of_file(reports["buggy"], into / "buggy", row["path"], SEVERITIES)
        )
        if side == "fixed" and not near:  # nothing was found near the place, so nothing can be named
            reports[side] = {"findings": [], "seconds": 0.0}
            result.update(lines_fixed=0, seconds_fixed=0.0, broken_fixed=False)
            file = folder / row["path"]
            file.parent.mkdir(parents=True, exist_ok=True)
            texts[side] = []
            continue
        files = python_files(directory, commit)
        result["lines_" + side] = unpack(directory, files, scope(files, row["path"]), folder)
        reports[side] = read(options, folder)
        result["seconds_" + side] = round(reports[side]["seconds"], 2)
        result["broken_" + side] = reports[side].get("broken", False)
        file = folder / row["path"]
        there = side == "buggy" or file.exists()  # a mirror that lacks the faulty file counts as absent
        texts[side] = file.read_text("utf8", "replace").splitlines() if there else []
    moved = where_to(texts["buggy"], texts["fixed"])
    for name, severities in (("named", {"bug", "risk"}), ("named_any", SEVERITIES)):
        buggy = of_file(reports["buggy"], into / "buggy", row["path"], severities)
        fixed = of_file(reports["fixed"], into / "fixed", row["path"], SEVERITIES)
        hits = named(row, [b[:2] for b in buggy], [f[:2] for f in fixed], moved)
        result[name] = [list(hit) for hit in hits]
        if name == "named":
            result["named_as_bug"] = any((line, code, "bug") in buggy for line, code in hits)
    result["near_messages"] = [
        {key: f[key] for key in ("code", "name", "severity", "line", "message")}
        for f in reports["buggy"]["findings"]
        if f["path"] in (str(into / "buggy" / row["path"]), row["path"])
        and min(abs(f["line"] - listed) for listed in row["lines"]) <= NEAR
    ]
    return result


def files_beside(options: argparse.Namespace, rows: list[dict], out: Path) -> dict[str, dict]:
    """What ruff and TorchFix name of the pairs; each reads all the pairs' files, buggy and fixed, in one process."""
    store = out / "beside.json"
    if store.exists() or not options.beside:
        return json.loads(store.read_text()) if store.exists() else {}
    into = Path(tempfile.mkdtemp(prefix="corpus-beside-"))
    files = {}
    for row in rows:
        directory = mirror_of(options.mirrors, row["repo"])
        for side, commit in (("buggy", row["parent"]), ("fixed", row["fix"])):
            if directory is not None:
                file = into / row["id"] / f"{side}.py"
                file.parent.mkdir(parents=True, exist_ok=True)
                try:
                    file.write_bytes(git(directory, "show", f"{commit}:{row['path']}"))
                except subprocess.CalledProcessError:
                    file.write_bytes(b"")
                files[row["id"], side] = file
    results: dict[str, dict] = {row["id"]: {} for row in rows}
    for tool in ("ruff", "torchfix"):
        found = beside(options, tool, list(files.values()))
        for row in rows:
            sides = {
                side: [
                    (line, code) for path, line, code in found if path == str(files.get((row["id"], side)))
                ]
                for side in ("buggy", "fixed")
            }
            texts = [
                files[row["id"], side].read_text("utf8", "replace").splitlines()
                if (row["id"], side) in files
                else []
                for side in ("buggy", "fixed")
            ]
            results[row["id"]][tool] = named(row, sides["buggy"], sides["fixed"], where_to(*texts))
    shutil.rmtree(into, ignore_errors=True)
    store.write_text(json.dumps(results))
    return results


def one_ordinary(options: argparse.Namespace, row: dict, directory: Path, into: Path) -> dict:
    files = python_files(directory, row["commit"])
    names = [name for name in files if name.split("/")[0] in row["folders"] and not SKIPPED.search(name)]
    folder = into / "ordinary"
    folder.mkdir(parents=True)
    num_lines = unpack(directory, files, names, folder)
    report = read(options, folder)
    findings = [
        {
            **{key: f[key] for key in ("code", "name", "severity", "line", "message")},
            "path": str(f["path"]).removeprefix(str(folder) + "/"),
        }
        for f in report["findings"]
    ]
    paths = [folder / name for name in names]
    ruff = [
        hit
        for start in range(0, len(paths), 500)
        for hit in beside(options, "ruff", paths[start : start + 500])
    ]
    torchfix = beside(options, "torchfix", paths) if options.torchfix_ordinary else []
    return {
        "repo": row["repo"],
        "commit": row["commit"],
        "lines": num_lines,
        "seconds": round(report["seconds"], 2),
        "broken": report.get("broken", False),
        "findings": findings,
        "counts": Counter(f["severity"] for f in findings),
        "ruff": len(ruff),
        "ruff_codes": Counter(code for *_, code in ruff).most_common(8),
        "torchfix": len(torchfix),
    }


def held_run(options: argparse.Namespace, commit: str) -> None:
    """Log a run on the held half; the fifth is refused."""
    log = HERE / "held_runs.log"
    done = [line for line in log.read_text().splitlines() if line.startswith("run ")] if log.exists() else []
    if len(done) >= MOST_HELD_RUNS:
        raise SystemExit("Four runs on the held half were made; there is no fifth.")
    lists = "".join((HERE / "held" / name).read_text() for name in ("pairs.jsonl", "ordinary.jsonl"))
    digest = hashlib.sha256(lists.encode()).hexdigest()[:12]
    when = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    with log.open("a") as out:
        out.write(
            f"run {len(done) + 1} of {MOST_HELD_RUNS} {when} tool {commit} lists {digest} out {options.out}\n"
        )


def over(
    options: argparse.Namespace, rows: list[dict], measure, key: str, out: Path
) -> tuple[list[dict], list[str]]:
    """Measure each row once; rows that an interrupted run has measured are kept."""
    results = rows_of(out) if out.exists() else []
    known = {result[key] for result in results}
    absent = []
    for row in rows:
        if row[key] in known:
            continue
        directory = mirror_of(options.mirrors, row["repo"])
        if directory is None:
            absent.append(row["repo"])
            continue
        into = Path(tempfile.mkdtemp(prefix="corpus-"))
        try:
            result = measure(options, row, directory, into)
        except (subprocess.CalledProcessError, OSError) as error:
            absent.append(f"{row[key]} ({type(error).__name__})")
            continue
        finally:
            shutil.rmtree(into, ignore_errors=True)
        results.append(result)
        with out.open("a") as file:
            file.write(json.dumps(result) + "\n")
    return results, absent


def share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.0f} %)" if whole else "0 of 0"


def summary(
    pairs: list[dict], found: list[dict], ordinary: list[dict], others: dict, absent: list[str], commit: str
) -> dict:
    by_id = {row["id"]: row for row in pairs}
    shows = [r for r in found if by_id[r["id"]]["source_can_show"]]
    neutral = [r for r in shows if not by_id[r["id"]]["names_fault"]]
    num_lines = sum(r["lines"] for r in ordinary)
    counts = sum((Counter(r["counts"]) for r in ordinary), Counter())
    return {
        "tool": commit,
        "pairs": len(found),
        "named": share(sum(bool(r["named"]) for r in found), len(found)),
        "named_of_source": share(sum(bool(r["named"]) for r in shows), len(shows)),
        "named_of_source_found_by_log": share(sum(bool(r["named"]) for r in neutral), len(neutral)),
        "named_as_bug": share(sum(r["named_as_bug"] for r in found), sum(bool(r["named"]) for r in found)),
        "named_at_any_severity": share(sum(bool(r["named_any"]) for r in found), len(found)),
        "ruff": share(sum(bool(o.get("ruff")) for o in others.values()), len(others)),
        "torchfix": share(sum(bool(o.get("torchfix")) for o in others.values()), len(others)),
        "broken_reads": sum(r["broken_buggy"] + r["broken_fixed"] for r in found)
        + sum(r["broken"] for r in ordinary),
        "pair_lines": sum(r["lines_buggy"] for r in found),
        "pair_seconds": round(sum(r["seconds_buggy"] + r["seconds_fixed"] for r in found), 1),
        "ordinary_repositories": len(ordinary),
        "ordinary_lines": num_lines,
        "ordinary_seconds": round(sum(r["seconds"] for r in ordinary), 1),
        "findings": dict(counts),
        "per_1000_lines": {name: round(1000 * n / num_lines, 3) for name, n in counts.items()}
        if num_lines
        else {},
        "ruff_per_1000_lines": round(1000 * sum(r["ruff"] for r in ordinary) / num_lines, 2)
        if num_lines
        else 0,
        "torchfix_per_1000_lines": round(1000 * sum(r["torchfix"] for r in ordinary) / num_lines, 3)
        if num_lines
        else 0,
        "absent": absent,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    lists = parser.add_mutually_exclusive_group(required=True)
    lists.add_argument("--half", choices=["work", "held"])
    lists.add_argument("--pairs", type=Path, help="another list of pairs; results lie beside it")
    parser.add_argument("--mirrors", type=Path, required=True, help="folder of git mirrors: owner+name/...")
    parser.add_argument(
        "--tree", type=Path, required=True, help="a checkout of the tool (its src goes on PYTHONPATH)"
    )
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument(
        "--beside", type=Path, default=HERE / "venv" / "bin", help="folder with ruff and torchfix"
    )
    parser.add_argument(
        "--torchfix-ordinary", action="store_true", help="TorchFix on ordinary code too (slow)"
    )
    parser.add_argument("--out", required=True, help="name of the folder for results, under that of the list")
    parser.add_argument("--timeout", type=float, default=400)
    parser.add_argument("--only", choices=["pairs", "ordinary"])
    options = parser.parse_args()
    commit = subprocess.run(
        ["git", "-C", str(options.tree), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    home = HERE / options.half if options.half else options.pairs.parent
    out = home / options.out
    if options.half == "held" and not out.exists():
        held_run(options, commit)
    out.mkdir(parents=True, exist_ok=True)
    pairs = rows_of(options.pairs or home / "pairs.jsonl")
    ordinary = rows_of(home / "ordinary.jsonl") if options.half else []
    found, absent = over(
        options, [] if options.only == "ordinary" else pairs, one_pair, "id", out / "pairs.jsonl"
    )
    code, missing = over(
        options, [] if options.only == "pairs" else ordinary, one_ordinary, "repo", out / "ordinary.jsonl"
    )
    found = [r for r in found if r["id"] in {row["id"] for row in pairs}]
    others = files_beside(options, [row for row in pairs if row["id"] in {r["id"] for r in found}], out)
    others = {key: other for key, other in others.items() if key in {r["id"] for r in found}}
    report = summary(pairs, found, code, others, absent + missing, commit)
    (out / "summary.json").write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
