# SPDX-License-Identifier: Apache-2.0
"""Whether a process trains in a run's folder, found out from outside: nothing is locked for it. Imports no torch."""

import re
import socket
from pathlib import Path

from truestep.checkpoints.names import LOCK
from truestep.core.files import read_regular_file
from truestep.core.system import held_locks

_SIGNATURE = re.compile(r"process (\d+) on (\S+) ")


def is_lock_held(folder: Path) -> bool | None:
    """Return whether a process holds the lock of a folder of checkpoints; None where this machine can't tell.

    To try the lock would be simpler, and a run that starts at this moment would be refused.
    """
    path = folder / LOCK
    try:
        signed, status = read_regular_file(path).decode("utf-8", "replace"), path.stat()
    except OSError:
        return False
    match = _SIGNATURE.match(signed)
    signer, host = (int(match[1]), match[2]) if match else (0, socket.gethostname())
    held = held_locks()
    for lock in held or ():
        # some file systems give `stat` another device than the kernel's table has
        if lock.inode == status.st_ino and (lock.device == status.st_dev or lock.process == signer):
            return True
    if host != socket.gethostname():
        return None
    return held is None and match is not None and _is_signer_alive(signer, status.st_mtime)


def _is_signer_alive(process: int, signed_at: float) -> bool:
    """Whether the process that signed a lock still runs; one that began later has its number by chance."""
    import psutil

    try:
        # A second of grace: psutil adds clock ticks to the time of boot, which Linux gives in whole seconds.
        return bool(psutil.Process(process).create_time() <= signed_at + 1)
    except (psutil.Error, ValueError):
        return False
