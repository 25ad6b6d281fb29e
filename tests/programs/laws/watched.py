# SPDX-License-Identifier: Apache-2.0
"""Watched is plain: a run under `truestep doctor` leaves, prints and returns what the run without does; no right one is accused."""

import json
import re
from pathlib import Path

from programs.compose import Program
from programs.laws.comparing import differing, left
from programs.laws.running import ViolationError, ran, refusal, written

STAMP = re.compile(r"^[A-Z]\d{4} [\d:.]+ \d+ ", re.MULTILINE)  # time and process, in a line of torch's log
CHECKPOINT = re.compile(r"\b\d{6}-step-")  # its number: how many there were before goes by the clock


def doctored(program: Program, folder: Path, report: Path):
    """Run the program in a folder under the doctor; return how it ended, and its findings."""
    options = ("--output", "json", "--report", str(report))
    ended = ran(folder, "-m", "truestep", "doctor", "--fail-on", "bug", *options, *program.command())
    return ended, json.loads(report.read_text("utf-8"))["findings"] if report.exists() else []


def watched_is_plain(program: Program, folder: Path) -> str:
    """Hold a run under `truestep doctor` against the run without: output, files, exit status."""
    # a run watches itself, and leaves that to a doctor around it: what it then doesn't say is another matter
    texts = program.files({"own watch": ", doctor=False"})
    plain, watched = (written(folder / name, texts) for name in ("plain", "watched"))
    report, volatile = folder / "report.json", [habit.words.get("volatile") for habit in program.habits]
    command = program.command()
    expected = ran(plain, *command)
    if expected.returncode and refusal(program, "watched", expected.stderr):
        return "refused"
    if expected.returncode:
        raise ViolationError(program, texts, f"the plain program failed:\n{expected.stderr}")
    found, findings = doctored(program, watched, report)
    bugs = [each for each in findings if each["severity"] == "bug"]
    seen = []
    outputs = [
        CHECKPOINT.sub("step-", STAMP.sub("", (ended.stdout + ended.stderr).replace(str(place), "")))
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
