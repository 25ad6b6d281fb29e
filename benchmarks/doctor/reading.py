# SPDX-License-Identifier: Apache-2.0
"""How long `truestep read` takes for a repository of 200 files that train, made of the checks' right examples.

    python benchmarks/doctor/reading.py

Prints the processor time of the fastest of five readings: other load on the machine lengthens the wall time.
"""

import tempfile
import time
from pathlib import Path

from truestep.doctor.catalogue import checks
from truestep.doctor.page import PRELUDE
from truestep.doctor.read import read_paths

FILES = 200
EXAMPLES = 6  # in a file
TIMES = 5


def write(folder):
    pages = [check.page() for check in checks().values()]
    for number in range(FILES):
        parts = [pages[(7 * number + offset) % len(pages)].good for offset in range(EXAMPLES)]
        (folder / f"file_{number}.py").write_text(PRELUDE + "\n".join(parts), "utf-8")
    return sum(len(path.read_text("utf-8").splitlines()) for path in folder.iterdir())


def main():
    with tempfile.TemporaryDirectory() as work:
        lines = write(Path(work))
        times = []
        for _ in range(TIMES):
            started = time.process_time()
            read_paths([Path(work)])
            times.append(time.process_time() - started)
    print(f"{FILES} files, {lines} lines: {min(times):.2f} s of processor time")


if __name__ == "__main__":
    main()
