# SPDX-License-Identifier: Apache-2.0
"""`python killing.py FRAMEWORKS WORKERS KILLS SEED FOLDER`: trainings killed at random moments inside an epoch, and started again.

The run that never is killed is this process's own; the others are forked from it, which by then has everything loaded. Prints what
they end with as JSON.
"""

import importlib
import json
import os
import random
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import torch
from trainings import FRAMEWORKS

WAYS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def start(train, directory, workers):
    """Fork a run; it writes a point for each batch into a pipe, and what it ends with."""
    reading, writing = os.pipe()
    if number := os.fork():
        os.close(writing)
        return number, os.fdopen(reading, "rb", buffering=0)
    os.setsid()
    os.close(reading)
    status = 1
    try:
        torch.set_num_threads(1)
        end = train(directory, workers, lambda: os.write(writing, b"."))
        os.write(writing, end.encode())
        status = 0
    except BaseException:
        if not directory.name.startswith("killed"):
            traceback.print_exc()
    finally:
        os._exit(status)


def end_of(process):
    """Return what a run wrote, when it is over; its orphaned workers go with it."""
    number, pipe = process
    with pipe:
        os.waitpid(number, 0)
        with suppress(ProcessLookupError):
            os.killpg(number, signal.SIGKILL)
        return pipe.read().decode().lstrip(".")


def killed_ends(train, workers, kills, draws, folder):
    """Kill trainings and start them again until so many kills are made, and each training is over; return their ends."""
    ends, made = [], 0
    while made < kills:
        directory = folder / f"killed-{len(ends)}"
        end = None
        while end is None:
            process = start(train, directory, workers)
            to_go = draws.randint(2, 9) if made < kills else 0
            read = b"".join(process[1].read(1) for _ in range(to_go))
            is_over = read.strip(b".") != b"" or len(read) < to_go
            if to_go and not is_over:
                time.sleep(draws.uniform(0, 0.02))
                with suppress(ProcessLookupError):
                    os.kill(process[0], draws.choice(WAYS))
                made += 1
            rest = read.decode().lstrip(".") + end_of(process)
            if rest or is_over or not to_go:
                end = rest or "failed"
        ends.append(end)
    return ends


def main(frameworks, workers, kills, seed, folder):
    report = {}
    for name in frameworks.split(","):
        importlib.import_module(name)
        (folder / name).mkdir()
        plain = FRAMEWORKS[name](folder / name / "plain", workers, lambda: None)
        ends = killed_ends(FRAMEWORKS[name], workers, kills, random.Random(seed), folder / name)
        report[name] = {"plain": plain, "ends": ends}
    print(json.dumps(report))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
