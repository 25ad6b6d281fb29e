# SPDX-License-Identifier: Apache-2.0
"""The doctor, TrainCheck and torch-audit on one training: what a step costs under each, and what each says.

    python benchmarks/doctor/beside.py [--steps 2030]

One script of 0.6 ms a step prints the CPU time of its steps after the 30th. It is run as it is, and under each tool as that
tool's own guide says: clean, and with `zero_grad` left out. TrainCheck first learns from the clean script, so its alarms
on a clean run are those of a second one with another seed. What a tool says is counted as its own report counts it.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

SCRIPT = """\
import time
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed({seed})
model = nn.Sequential(nn.Linear(128, 192), nn.ReLU(), nn.Linear(192, 192), nn.ReLU(), nn.Linear(192, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x, y = torch.randn(64, 128), torch.randint(10, (64,))
{before}
for step in range({steps}):
    if step == 30:
        started = time.process_time()
    {clear}
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
print("ms a step:", 1e3 * (time.process_time() - started) / ({steps} - 30))
{after}
"""
AUDIT = """\
from torch_audit import autopatch
auditor = autopatch(model, optimizer=optimizer, every_n_steps={every}, reporters=[], run_static=True, run_init=True)
"""
AUDITED = 'print("findings:", sorted({each.rule_id for each in auditor.finish(report=False).findings}))\n'


class Ran(NamedTuple):
    """One run of the script under a tool."""

    milliseconds: float
    said: str
    seconds: float


def script(folder, name, steps, *, clean, seed=0, every=None):
    path = folder / name
    audited = every is not None
    text = SCRIPT.format(
        seed=seed,
        steps=steps,
        clear="optimizer.zero_grad()" if clean else "pass",
        before=AUDIT.format(every=every) if audited else "",
        after=AUDITED if audited else "",
    )
    path.write_text(text, "utf-8")
    return path


def run(folder, *command):
    """Run a command in the folder; return what it printed, and how long it took."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
    started = time.perf_counter()
    ended = subprocess.run(
        [str(each) for each in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode not in (0, 1):
        raise SystemExit(
            f"{' '.join(map(str, command))} ended with {ended.returncode}:\n{ended.stderr[-2000:]}"
        )
    return ended.stdout + ended.stderr, time.perf_counter() - started


def step_of(text):
    return float(re.findall(r"ms a step: ([\d.]+)", text)[-1])


def plain(folder, steps, clean):
    text, seconds = run(folder, sys.executable, script(folder, "plain.py", steps, clean=clean))
    return Ran(step_of(text), "", seconds)


def doctor(folder, steps, clean):
    path = script(folder, "watched.py", steps, clean=clean)
    text, seconds = run(folder, sys.executable, "-m", "truestep", "doctor", "--json", path.name)
    document = json.loads(text[text.index("{") : text.rindex("}") + 1])
    said = [
        f"{each['code']} at line {each['line']}"
        for each in document["findings"]
        if each["severity"] in ("bug", "risk")
    ]
    return Ran(step_of(text), "; ".join(said) or "nothing", seconds)


def audit(every):
    def audited(folder, steps, clean):
        text, seconds = run(
            folder, sys.executable, script(folder, "audited.py", steps, clean=clean, every=every)
        )
        return Ran(step_of(text), re.findall(r"findings: (.*)", text)[-1], seconds)

    return audited


class TrainCheck:
    """Learns from a clean run first; that takes its time once."""

    def __init__(self, folder):
        self.programs = Path(sys.executable).parent
        reference = script(folder, "reference.py", 60, clean=True)
        _, collecting = self.collect(folder, reference, "reference")
        _, inferring = run(
            folder, self.programs / "traincheck-infer", "-f", "reference", "-o", "invariants.json"
        )
        self.seconds = collecting + inferring

    def collect(self, folder, path, output, *options):
        command = [self.programs / "traincheck-collect", "--pyscript", path, "--models-to-track", "model"]
        return run(folder, *command, "--output-dir", output, *options)

    def __call__(self, folder, steps, clean):
        name = "clean" if clean else "faulty"
        path = script(folder, f"{name}.py", 60, clean=clean, seed=1)
        text, collecting = self.collect(folder, path, name, "--invariants", "invariants.json")
        said, checking = run(folder, self.programs / "traincheck-check", "-f", name, "-i", "invariants.json")
        failed = re.findall(r"Total failed invariants: (\S+)", said)[-1]
        return Ran(step_of(text), f"{failed} invariants failed", self.seconds + collecting + checking)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2030)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tools = {
            "plain": plain,
            "truestep doctor": doctor,
            "torch-audit, every 1000th step": audit(1000),
            "torch-audit, every step": audit(1),
            "TrainCheck (60 steps)": TrainCheck(folder),
        }
        print(
            f"{'':32} {'ms a step':>9} {'of plain':>8} {'seconds':>8}  says of the clean one | without zero_grad"
        )
        usual = None
        for label, tool in tools.items():
            clean, faulty = (tool(folder, options.steps, each) for each in (True, False))
            usual = usual or clean.milliseconds
            ratio = clean.milliseconds / usual
            print(
                f"{label:32} {clean.milliseconds:9.2f} {ratio:8.2f} {clean.seconds:8.1f}  {clean.said} | {faulty.said}"
            )


if __name__ == "__main__":
    main()
