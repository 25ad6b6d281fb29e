# SPDX-License-Identifier: Apache-2.0
"""What a run's directory keeps of its mirror: which lease it had last, so that its checkpoints can be told from older ones."""

import json
from pathlib import Path
from typing import NamedTuple

from truestep.checkpoints.checkpoint_names import ATTEMPT
from truestep.core.atomic_files import read_regular_file, replacing_file

MIRROR = ".mirror.json"
CHECKPOINTS = "checkpoints"
FETCHING = "fetching"  # in the place of a token: what is in the directory is not whole yet


class MirrorLeaseMark(NamedTuple):
    """The lease that a directory had last; number 0 where it never had one."""

    number: int
    token: str

    @property
    def is_fetching(self) -> bool:
        """Whether a fetch into the directory was broken off."""
        return self.token == FETCHING


def read_mirror_mark(directory: Path) -> MirrorLeaseMark:
    """Return what a directory keeps of its mirror."""
    try:
        body = json.loads(read_regular_file(directory / MIRROR))
        return MirrorLeaseMark(int(body["number"]), str(body["token"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return MirrorLeaseMark(0, "")


def write_mirror_mark(directory: Path, mark: MirrorLeaseMark) -> None:
    """Note the lease that a directory has."""
    with replacing_file(directory / MIRROR) as file:
        file.write(json.dumps({"schema_version": 1, **mark._asdict()}).encode())


def checkpoint_mark_names(checkpoints: Path) -> tuple[str, ...]:
    """Return the names of the marks beside the checkpoints: attempts, unfit, endings."""
    return tuple(sorted(path.name for path in checkpoints.iterdir() if path.name.startswith(ATTEMPT)))
