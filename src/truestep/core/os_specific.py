# SPDX-License-Identifier: Apache-2.0
"""What Linux, macOS and Windows do differently, asked here alone: locks, links, syncing, signals, forks, users.

Windows and macOS have not run this code; `tests/systems` runs it without what Windows lacks.
"""

import contextlib
import errno
import os
import re
import signal
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

SYNCS_FOLDERS = sys.platform != "win32"
"""Whether a folder can be synced, so that a new name in it outlives a loss of power. NTFS keeps a log of names of its own."""

if sys.platform == "win32":
    STOPPING_SIGNALS: dict[int, int] = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGBREAK: 149}
    UNCATCHABLE_SIGNALS: frozenset[int] = frozenset()
    WORKER_ENDED: int | None = None
else:
    STOPPING_SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGUSR1: 138, signal.SIGHUP: 129}
    UNCATCHABLE_SIGNALS = frozenset({signal.SIGKILL, signal.SIGSTOP})
    WORKER_ENDED = signal.SIGCHLD
# STOPPING_SIGNALS: those that ask a run to stop, with 128 and their number, as shells report a process that they ended (SIGHUP:
# the terminal was closed; SIGBREAK: Ctrl+Break). WORKER_ENDED: the signal that says so, where there is one.


_DEVICES = {
    "con",
    "prn",
    "aux",
    "nul",
    *(f"{each}{number}" for each in ("com", "lpt") for number in range(10)),
}


def is_reserved_name(name: str) -> bool:
    """Whether Windows takes a file's name for that of a device, whatever follows its first dot."""
    return name.partition(".")[0].strip().lower() in _DEVICES


def relative_path(folder: str | Path, path: str | Path) -> str:
    """Return a path as it is from a folder; the whole one where none leads there, as to another drive of Windows."""
    try:
        return os.path.relpath(path, folder)
    except ValueError:
        return os.path.abspath(path)  # noqa: PTH100 -- a text, as the other


def is_path_with_folder(text: str) -> bool:
    """Whether a text that was given is the path of something in a folder rather than a name."""
    return any(mark in text for mark in ("/\\" if sys.platform == "win32" else "/"))


def path_from_file_url(path: str) -> str:
    """Return the path that an address names behind file://, where Windows has its drive behind a slash: /C:/runs."""
    return path[1:] if sys.platform == "win32" and re.match(r"/[A-Za-z]:", path) else path


def supports_long_paths(folder: Path, more: int) -> bool:
    """Whether files may have paths `more` characters longer than a folder's: on Windows long ones have to be switched on."""
    if sys.platform != "win32" or len(str(folder.absolute())) + more < _MAX_PATH:
        return True
    longest = folder / ("x" * (more - 1))
    try:
        os.close(os.open(longest, os.O_CREAT | os.O_WRONLY))
        longest.unlink()
    except FileNotFoundError:
        return False
    return True


_MAX_PATH = 260


def open_no_follow(path: Path, flags: int, mode: int = 0o666) -> int:
    """Open a file and return its descriptor: no link is followed, and nothing waits at a pipe or becomes the terminal.

    Raises:
        OSError: ELOOP where it is a link; IsADirectoryError for a folder on Windows.
    """
    if sys.platform == "win32":
        if path.is_symlink():  # asked beforehand, since there is no flag for it
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        if path.is_dir():  # there it would be a PermissionError
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return os.open(path, flags | os.O_BINARY, mode)
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, mode)


def open_folder(path: Path) -> int:
    """Open a folder, to sync the names in it; only where SYNCS_FOLDERS."""
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, "Windows syncs no folders", str(path))
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def sync_file(descriptor: int) -> None:
    """Return when everything written is on the disk; on macOS `os.fsync` would leave it in the drive's cache."""
    if sys.platform == "darwin":
        import fcntl

        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError as error:
            # a network's file system may not know it
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
        else:
            return
    os.fsync(descriptor)


def sync_folder(path: Path) -> None:
    """Put the names in a folder on the disk: without it a new or renamed file can vanish with a loss of power."""
    if not SYNCS_FOLDERS:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def drop_page_cache(descriptor: int, begin: int, size: int) -> None:
    """Have the disk begin with a part of a file, and keep none of it in memory that is on the disk; promises nothing."""
    if sys.platform == "linux":  # which writes what is not on the disk, and drops the rest
        os.posix_fadvise(descriptor, begin, size, os.POSIX_FADV_DONTNEED)


def lock_file(descriptor: int) -> None:
    """Take a file's lock until the descriptor is closed, by whatever end of the process; its text stays readable for others.

    Raises:
        BlockingIOError: another process holds it.
    """
    if sys.platform == "win32":
        import msvcrt

        # A byte far behind the text: what is locked on Windows can't be read. The package filelock (4.2) locks the first.
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(errno.EAGAIN, "another process holds the lock") from error
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
    else:
        import fcntl

        # Not lockf: POSIX locks are the process's, and vanish when any descriptor of the file is closed.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_LOCKED_BYTE = 2**31 - 2


class HeldLock(NamedTuple):
    """A lock of a whole file: who holds it, and of which file."""

    process: int
    device: int
    inode: int


def held_locks() -> list[HeldLock] | None:
    """Return the locks of whole files that are held on this machine; None where the system does not list them."""
    if sys.platform != "linux":
        return None
    try:
        text = LOCKS.read_text("ascii", "replace")
    except OSError:
        return None
    return [
        HeldLock(int(process), os.makedev(int(major, 16), int(minor, 16)), int(inode))
        for process, major, minor, inode in _HELD.findall(text)
    ]


LOCKS = Path("/proc/locks")
_HELD = re.compile(r"\d+: FLOCK +ADVISORY +WRITE +(\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ")


def read_into_buffer_at(descriptor: int, buffer: memoryview, at: int) -> int:
    """Read some bytes from a place of a file on into the buffer and return how many; 0 at the end."""
    if sys.platform == "win32":
        got = read_at(descriptor, len(buffer), at)
        buffer[: len(got)] = got
        return len(got)
    # not os.pread, which makes a bytes object that must be copied once more
    return os.preadv(descriptor, [buffer], at)


def read_at(descriptor: int, size: int, at: int) -> bytes:
    """Return at most so many bytes from a place of a file on."""
    if sys.platform == "win32":
        with _position:
            os.lseek(descriptor, at, os.SEEK_SET)
            return os.read(descriptor, size)
    return os.pread(descriptor, size, at)


def write_at(descriptor: int, data: bytes, at: int) -> int:
    """Write some of the data at a place of a file and return how many bytes were taken."""
    if sys.platform == "win32":
        with _position:
            os.lseek(descriptor, at, os.SEEK_SET)
            return os.write(descriptor, data)
    return os.pwrite(descriptor, data, at)


if sys.platform == "win32":
    import threading

    _position = threading.Lock()  # a file has one, for all threads


def make_world_writable(descriptor: int) -> None:
    """Let all users of the machine write to a file, whatever the umask; Windows goes by its folder."""
    if sys.platform != "win32":
        os.fchmod(descriptor, 0o666)


def user_id() -> int | None:
    """Return the number of this process's user; None on Windows."""
    if sys.platform == "win32":
        return None
    return os.getuid()


def is_administrator() -> bool:
    """Whether this process may do what root may."""
    if sys.platform == "win32":
        import ctypes

        return bool(ctypes.windll.shell32.IsUserAnAdmin())
    return os.geteuid() == 0


def call_in_forked_children(function: Callable[[], object]) -> None:
    """Call a function in every process that is forked from this one, from now on; it can't be taken back."""
    if sys.platform != "win32":
        os.register_at_fork(after_in_child=function)


def open_descriptors() -> list[int]:
    """Return the descriptors that this process has open, and the one that listed them; none where the system is not Linux."""
    if sys.platform != "linux":
        return []
    return [int(each) for each in os.listdir("/proc/self/fd")]  # noqa: PTH208 -- names


def read_files_alone() -> None:
    """Give a forked process positions of its own in the files that it got open for reading.

    Forked processes share them: whoever seeks or reads moves what the others read next. What is not forked shares none. (On macOS
    nothing opens a file again where it stands.)
    """
    for descriptor in open_descriptors():
        with contextlib.suppress(OSError):  # the one that listed them; a file that may not be opened again
            _reopen_if_read(descriptor)


def open_connections() -> dict[int, tuple[int, int]]:
    """Return the sockets, pipes and the like that this process has open, but for its three standard ones: descriptor and which."""
    found = {}
    for descriptor in open_descriptors():
        with contextlib.suppress(OSError):  # the one that listed them
            status = os.fstat(descriptor)
            kind = stat.S_IFMT(status.st_mode)
            if descriptor > 2 and kind in (stat.S_IFSOCK, stat.S_IFIFO, 0):  # 0: an event's
                found[descriptor] = status.st_dev, status.st_ino
    return found


def redirect_all_to_devnull(connections: Mapping[int, tuple[int, int]]) -> None:
    """Let a forked process find nothing where these were open: what it read or wrote there would be missing in the other.

    Where one was closed meanwhile, and its number is another's, that one is left alone.
    """
    for descriptor, which in connections.items():
        with contextlib.suppress(OSError):  # it is closed
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) == which:
                _redirect_to_devnull(descriptor)


def _redirect_to_devnull(descriptor: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(nothing, descriptor, inheritable=False)
    finally:
        os.close(nothing)


def _reopen_if_read(descriptor: int) -> None:
    if sys.platform != "linux":
        return
    import fcntl

    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    is_for_reading = flags & os.O_ACCMODE == os.O_RDONLY and not flags & os.O_PATH
    if not is_for_reading or not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return
    place = os.lseek(descriptor, 0, os.SEEK_CUR)
    own = os.open(f"/proc/self/fd/{descriptor}", flags)
    try:
        os.lseek(own, place, os.SEEK_SET)
        os.dup2(own, descriptor, inheritable=os.get_inheritable(descriptor))
    finally:
        os.close(own)


def replace_process(program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Become another program: its signals and status are then this process's. On Windows, wait for it and end as it does.

    Raises:
        OSError: it can't be started.
    """
    if sys.platform == "win32":
        import subprocess

        sys.exit(subprocess.run([program, *arguments], env=environment, check=False).returncode)
    # Python ignores SIGPIPE, and a program that takes its place would inherit that: `... | head` would not end it.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execvpe(program, [program, *arguments], environment)


def shared_machine_folder() -> Path:
    """Return a folder of the machine in which every user may make others."""
    if sys.platform == "win32":
        return Path(os.environ.get("PROGRAMDATA", "C:\\ProgramData"))
    return Path("/tmp")  # not that of TMPDIR, which may be each user's own


def has_pipe_reader(descriptor: int) -> bool | None:
    """Whether somebody still reads what is written to a pipe; None where the system can't tell."""
    if sys.platform == "win32":
        return None
    import select

    waiting = select.poll()
    waiting.register(descriptor, select.POLLOUT)
    return not any(event & (select.POLLERR | select.POLLHUP) for _, event in waiting.poll(0))


def soft_limit(name: str) -> int | None:
    """Return a soft limit of this process, such as "NOFILE"; None where there is none."""
    if sys.platform == "win32":
        return None
    import resource

    limit = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]
    return None if limit == resource.RLIM_INFINITY else limit


def peak_memory_bytes() -> int | None:
    """Return the most memory that this process had; None where the system does not say."""
    if sys.platform == "win32":
        import psutil

        found: Any = psutil.Process().memory_info()
        return int(found.peak_wset)
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def is_own_process(process: Any) -> bool:
    """Whether a process (of psutil) belongs to the user of this one."""
    if sys.platform == "win32":
        import psutil

        return bool(process.username() == psutil.Process().username())
    return bool(process.uids().real == os.getuid())
