# SPDX-License-Identifier: Apache-2.0
"""`python running.py NAME`: run a program in ./run; kill this process after UPDATES of its updates, within a body.

How many is said by the environment: a word of the command line that differs would take the promise back.
"""

import importlib
import itertools
import json
import os
import signal
import sys
import time
from pathlib import Path


def digits(tensors):
    """Return every value; a double says each float32 exactly."""
    return [tensor.detach().flatten().double().tolist() for tensor in tensors]


def wait_for_the_first_checkpoint(seconds):
    """Wait until one has been written, which a busy machine may do late: there must be something to go on from."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not any(Path("run/checkpoints").glob("0*")):
        time.sleep(0.01)


def main(name, killed_after):
    updates = itertools.count(1)

    def after_each_update(_):
        if next(updates) == killed_after:
            wait_for_the_first_checkpoint(4 if killed_after > 2 else 0)
            os.kill(os.getpid(), signal.SIGKILL)

    program = importlib.import_module(name)
    print(json.dumps(digits(program.with_a_run(Path("run"), after_each_update))))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main(sys.argv[1], int(os.environ["UPDATES"]))
