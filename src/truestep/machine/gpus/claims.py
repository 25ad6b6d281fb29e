# SPDX-License-Identifier: Apache-2.0
"""Claims on cards, so that two callers never pick the same one.

A claim is a lock (flock) on a file per card, which the kernel releases however its holder ends, or a
reservation: a moment, written into that file, until which a caller that has ended may still start its
training. Both are taken under one lock for the whole machine. Containers that don't share the folder
don't see each other's claims; set TRUESTEP_GPU_LOCKS to one that they share.
"""

import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from truestep.core import os_specific
from truestep.core.errors import GpuError

VARIABLE = "TRUESTEP_GPU_LOCKS"
DEFAULT_FOLDER = str(os_specific.shared_machine_folder() / "truestep-gpus")
MAX_RESERVATION_SECONDS = 3600.0  # a file that claims more was not written by this program
SELECTING_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.02


class CardClaims:
    """The claims of this machine, in one folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(os.environ.get(VARIABLE) or DEFAULT_FOLDER)
        try:
            with suppress(FileExistsError):
                self.folder.mkdir(parents=True)
                # as /tmp: all may claim, and nobody removes another's claim; not by `mkdir`, whose mode the umask cuts
                self.folder.chmod(0o1777)
            is_folder = stat.S_ISDIR(self.folder.lstat().st_mode)
        except OSError as error:
            raise GpuError(
                f"The folder of claims on cards, {self.folder}, can't be used ({error.strerror}), so a card "
                f"can't be picked safely. Set {VARIABLE} to a folder that all users may write to."
            ) from error
        if not is_folder:
            raise GpuError(
                f"The folder of claims on cards, {self.folder}, is no folder. Remove what is there."
            )

    @contextmanager
    def selection_lock(self) -> Iterator[None]:
        """Be the only one on this machine that chooses cards, for the length of a block."""
        descriptor = self._open_claim_file("selecting")
        try:
            deadline = time.monotonic() + SELECTING_TIMEOUT_SECONDS
            # Tried again and again, since flock itself knows no time-out.
            while not _try_lock(descriptor):
                if time.monotonic() > deadline:
                    raise GpuError(
                        f"Another process has been choosing cards for {SELECTING_TIMEOUT_SECONDS:.0f} s. "
                        f"Look for a stopped `truestep gpus` (fuser {self._claim_path('selecting')}) and end it."
                    )
                time.sleep(_POLL_SECONDS)
            yield
        finally:
            os.close(descriptor)

    def holder(self, uuid: str) -> str | None:
        """Return who holds a card, or None when it is free."""
        try:
            descriptor = os_specific.open_no_follow(self._claim_path(uuid), os.O_RDONLY)
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"somebody whose claim can't be read ({error.strerror})"
        try:
            claim = _read_claim(descriptor)
            # Tried by taking it for a moment, which nobody meets: who asks is the only one that chooses cards now.
            if not _try_lock(descriptor):
                return claim.get("who") or "another process"
            left = float(claim.get("until") or 0) - time.time()
            lasts = 0 < left <= MAX_RESERVATION_SECONDS
            return f"{claim.get('who')} for {left:.0f} s more" if lasts else None
        finally:
            os.close(descriptor)

    def hold(self, uuid: str) -> int:
        """Claim a card while the returned descriptor is open, here or in a process that inherits it."""
        descriptor = self._open_claim_file(uuid)
        if not _try_lock(descriptor):
            os.close(descriptor)
            raise GpuError(f"Card {uuid} was claimed by another process a moment ago. Choose again.")
        _write_claim(descriptor, {"who": _user_and_process_text()})
        return descriptor

    def reserve(self, uuid: str, seconds: float) -> None:
        """Claim a card for some seconds, beyond the end of this process."""
        descriptor = self.hold(uuid)
        until = time.time() + min(seconds, MAX_RESERVATION_SECONDS)
        _write_claim(descriptor, {"who": _user_and_process_text(), "until": until})
        os.close(descriptor)

    def _claim_path(self, name: str) -> Path:
        return self.folder / f"{name.replace('/', '_')}.claim"

    def _open_claim_file(self, name: str) -> int:
        """Open a claim's file, made for all users; never through a link that somebody else may have laid."""
        path = self._claim_path(name)
        try:
            with suppress(FileExistsError):
                descriptor = os_specific.open_no_follow(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
                os_specific.make_world_writable(descriptor)
                return descriptor
            # without O_CREAT: the kernel refuses that on other users' files in shared folders
            return os_specific.open_no_follow(path, os.O_RDWR)
        except OSError as error:
            raise GpuError(
                f"The claim {path} can't be opened ({error.strerror}), so a card can't be picked safely. "
                f"Make {self.folder} writable for all users, or set {VARIABLE} to a folder that is."
            ) from error


def _try_lock(descriptor: int) -> bool:
    try:
        os_specific.lock_file(descriptor)
    except BlockingIOError:
        return False
    return True


def _user_and_process_text() -> str:
    import getpass

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user number without a name
        user = str(os_specific.user_id())
    return f"{user}, process {os.getpid()}"


def _read_claim(descriptor: int) -> dict[str, str]:
    try:
        claim = json.loads(os_specific.read_at(descriptor, 4096, 0) or b"{}")
        return {"who": str(claim.get("who", "")), "until": str(float(claim.get("until") or 0))}
    except (ValueError, AttributeError, TypeError):
        return {}


def _write_claim(descriptor: int, claim: dict[str, object]) -> None:
    os.ftruncate(descriptor, 0)
    os_specific.write_at(descriptor, json.dumps(claim).encode(), 0)
