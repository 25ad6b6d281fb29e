#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run a command in an environment as people have them and tests seldom do: `python tools/odd.py NAME COMMAND ...`.

`make test-odd` runs the tests in each. To add one, write a function whose docstring says what is odd.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
NOBODY = 65534
# the last two say that the tests are of the wheel, and which are drawn
KEPT_BY_BARE = ("PATH", "HOME", "TRUESTEP_TEST_WHEEL", "TRUESTEP_TEST_DRAW")


@dataclass
class Surroundings:
    """What a command is started in."""

    scratch: Path
    command: list[str]
    variables: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def use_scratch(self, path: Path) -> None:
        """Have temporary files lie there."""
        path.mkdir(parents=True, exist_ok=True)
        self.variables["TMPDIR"] = str(path)


def bare(around: Surroundings) -> None:
    """No variable but PATH and HOME."""
    around.variables = {name: os.environ[name] for name in KEPT_BY_BARE if name in os.environ}


def lang(around: Surroundings) -> None:
    """LANG=C, and no other word on the language."""
    kept = {name: value for name, value in around.variables.items() if not name.startswith("LC_")}
    around.variables = {**kept, "LANG": "C", "LC_ALL": "C"}


def tz(around: Surroundings) -> None:
    """A time zone that is no whole number of hours from UTC."""
    around.variables["TZ"] = "CHAST-12:45"


def tmpdir(around: Surroundings) -> None:
    """Temporary files in a folder with spaces and letters of other languages."""
    around.use_scratch(around.scratch / "für später 步骤")


def umask(around: Surroundings) -> None:  # noqa: ARG001 - the interface of all
    """What is written can be read by its owner alone: umask 077."""
    os.umask(0o077)


def files(around: Surroundings) -> None:  # noqa: ARG001
    """At most 64 files may be open: ulimit -n 64."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def ignored(around: Surroundings) -> None:  # noqa: ARG001
    """HUP and INT are ignored, as under nohup and in the background of a script."""
    for each in (signal.SIGHUP, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)


def user(around: Surroundings) -> None:
    """Another user than root, who can read the repository and write to nothing of it."""
    if os.geteuid() != 0:
        return
    if not (shutil.which("unshare") and shutil.which("setpriv")):
        sys.exit("odd: to be another user needs unshare and setpriv (util-linux)")
    home = around.scratch / "home"
    home.mkdir()
    around.variables.update(HOME=str(home), USER="nobody", LOGNAME="nobody")
    for path in (around.scratch, *around.scratch.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    become = [
        *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
        *("--inh-caps=-all", "--bounding-set=-all"),
    ]
    opened = "; ".join(
        ["umask 022", *_openings(around)]
    )  # what is mounted on has to be open to the other user
    script = f'set -eu\n({opened})\nexec "$@"'
    around.command = ["unshare", "-m", "sh", "-c", script, "sh", *become, *around.command]


def together(around: Surroundings) -> None:
    """All of these at once: what passes here has met each of them in the time of one."""
    for change in (bare, lang, tz, tmpdir, umask, ignored, user, files):
        change(around)


def _openings(around: Surroundings) -> list[str]:
    """Return what shows to anybody, in mounts of this process alone, a Python or a repository below a closed folder."""
    code = "import sys; print(sys.base_prefix)"
    prefix = subprocess.run([around.command[0], "-c", code], check=True, capture_output=True, text=True)
    needed = {path: _closed_above(path) for path in (REPOSITORY, Path(prefix.stdout.strip()))}
    places = {path: f"{around.scratch}.held.{index}" for index, path in enumerate(needed) if needed[path]}
    return [
        *(f"mkdir '{place}'; mount --bind '{path}' '{place}'" for path, place in places.items()),
        *(f"mount -t tmpfs -o mode=755 none '{closed}'" for closed in {needed[path] for path in places}),
        *(f"mkdir -p '{path}'; mount --move '{place}' '{path}'" for path, place in places.items()),
        *(f"rmdir '{place}'" for place in places.values()),
    ]


def _closed_above(path: Path) -> Path | None:
    """Return the first folder on the way to a path that not everybody may pass."""
    return next((each for each in reversed(path.parents) if not each.stat().st_mode & 0o001), None)


ENVIRONMENTS: dict[str, Callable[[Surroundings], None]] = {
    each.__name__: each for each in (bare, lang, tz, tmpdir, umask, files, ignored, user, together)
}


def main(name: str, command: list[str]) -> int:
    """Run the command there; return its status."""
    if name not in ENVIRONMENTS:
        sys.exit(f"odd: there is no environment {name!r}; there are {', '.join(ENVIRONMENTS)}")
    memory = "/dev/shm"
    scratch = Path(
        tempfile.mkdtemp(prefix="truestep-odd.", dir=memory if os.access(memory, os.W_OK) else None)
    )
    around = Surroundings(scratch, command)
    around.use_scratch(scratch / "tmp")
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # which ends the command, and leaves nothing there
    try:
        ENVIRONMENTS[name](around)
        print(f"odd: {name}: {ENVIRONMENTS[name].__doc__}", flush=True)
        return subprocess.run(around.command, env=around.variables, check=False).returncode
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
