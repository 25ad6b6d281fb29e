# SPDX-License-Identifier: Apache-2.0
"""Runs scripts under `truestep doctor`, each in a fork of a process that has imported torch already."""

import json
import os
import resource
import signal
import sys
import time

STEPS = {"eriklindernoren/PyTorch-GAN": 24, "graykode/nlp-tutorial": 200}
MANY_STEPS = 6000  # scripts that evaluate only after training have to come to their end
POLL_SECONDS = 0.1


def warm(work):
    """Import what all of them import, with the stand-ins in its place."""
    sys.path.insert(0, str(work / "site-packages"))
    os.environ["MPLBACKEND"] = "Agg"
    import sitecustomize_for_scripts  # noqa: F401 - a GPU's calls happen on the CPU from here on
    import torch

    torch.set_num_threads(1)


def run_all(work, jobs, seconds, num_at_once):
    """Run each (name, arguments) and return its report, or the reason why there is none, by name.

    Args:
        work: the folder of the copies.
        jobs: names of scripts below it, with their arguments.
        seconds: of processor time for each; on a busy machine ten times as many may pass.
        num_at_once: how many run beside each other.
    """
    warm(work)
    (work / "reports").mkdir(exist_ok=True)
    waiting, running = list(jobs), {}
    while waiting or running:
        while waiting and len(running) < num_at_once:
            name, arguments = waiting.pop(0)
            if not report_of(work, name).exists():  # else it is there from a run that was interrupted
                running[start(work, name, arguments, seconds)] = name, time.monotonic()
        time.sleep(POLL_SECONDS)
        for pid in [each for each in running if os.waitpid(each, os.WNOHANG)[0]]:
            name, _ = running.pop(pid)
            print(f"ran {name}", file=sys.stderr, flush=True)
        for pid, (_, started) in running.items():
            if time.monotonic() - started > 10 * seconds:
                os.kill(pid, signal.SIGKILL)
    return {name: report(work, name, seconds) for name, _ in jobs}


def report_of(work, name):
    return work / "reports" / f"{name.replace('/', '+')}.json"


def report(work, name, seconds):
    try:
        return json.loads(report_of(work, name).read_text("utf-8"))
    except OSError:
        reason = f"no report: it took more than {seconds} s of processor time, or ended Python"
        return {"findings": [], "abstentions": [], "script": {"error": reason}}


def start(work, name, arguments, seconds):
    """Fork a process that runs `truestep doctor` on the script; return its number.

    After so many seconds of processor time the script is interrupted, and its report written.
    """
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.signal(signal.SIGXCPU, interrupt)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, 3 * seconds))
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silent, stream)
        status = doctor(work, name, arguments)
    finally:
        os._exit(status)


def interrupt(*_):
    """As Ctrl-C, once: the signal comes every second from then on, and the report has to be written."""
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    raise KeyboardInterrupt


def doctor(work, name, arguments):
    from truestep.cli.doctor import app

    repository = "/".join(name.split("/")[:2])
    sys.path.insert(0, str(work / repository))
    os.chdir((work / name).parent)
    options = ["--steps", str(STEPS.get(repository, MANY_STEPS)), "--output", "json"]
    place = ["--report", str(report_of(work, name)), (work / name).name]
    try:
        app([*options, *place, *arguments])
    except SystemExit as end:
        return int(end.code or 0)
    return 0
