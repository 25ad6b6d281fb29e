# SPDX-License-Identifier: Apache-2.0
"""How long `truestep read` takes for a repository of 200 files that train, made of the checks' right examples.

    python benchmarks/doctor/reading.py

Prints the processor time of the fastest of five readings: other load on the machine lengthens the wall time.
"""

import os
import tempfile
from pathlib import Path

from truestep.doctor.catalogue import checks
from truestep.doctor.linting import read_paths
from truestep.doctor.page import PRELUDE

FILES = 200
EXAMPLES = 6  # in a file
TIMES = 5


def write(folder):
    pages = [check.page() for check in checks().values()]
    for number in range(FILES):
        parts = [pages[(7 * number + offset) % len(pages)].good for offset in range(EXAMPLES)]
        (folder / f"file_{number}.py").write_text(PRELUDE + "\n".join(parts), "utf-8")
    return sum(len(path.read_text("utf-8").splitlines()) for path in folder.iterdir())


def processor_time():
    """Return the seconds of this process and of those that it has waited for: reading shares its work among several."""
    taken = os.times()
    return taken.user + taken.system + taken.children_user + taken.children_system


def main():
    with tempfile.TemporaryDirectory() as work:
        lines = write(Path(work))
        times = []
        for _ in range(TIMES):
            started = processor_time()
            read_paths([Path(work)])
            times.append(processor_time() - started)
    print(f"{FILES} files, {lines} lines: {min(times):.2f} s of processor time")


if __name__ == "__main__":
    main()
