# SPDX-License-Identifier: Apache-2.0
"""What a child could do to its parent: each makes something of the parent's, strikes at it, and tells whether it is as it was.

Each is a generator: it yields the blow, to be struck in a child, and then, in the parent, whether nothing was touched.
"""

import ctypes
import mmap
import multiprocessing
import os
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import termios
from multiprocessing import shared_memory
from pathlib import Path

import numpy as np
import torch

LIBRARY = ctypes.CDLL(None, use_errno=True)
# numbers of x86_64 and aarch64
NUMBERS = {
    "clone": (56, 220),
    "vfork": (58, None),
    "pidfd_send_signal": (424, 424),
    "rt_sigqueueinfo": (129, 138),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "ioprio_set": (251, 30),
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "shmget": (29, 194),
    "msgget": (68, 186),
}


def call(name, *arguments):
    """Make a system call that Python has no function for; raise what the kernel says."""
    number = NUMBERS[name][os.uname().machine == "aarch64"]
    if number is None:
        raise PermissionError(name)
    result = LIBRARY.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


# ── files ─────────────────────────────────────────────────────────────────────────────────────


def existing(folder):
    path = folder / "weights.pt"
    torch.save({"weight": torch.ones(3)}, path)
    return path, facts_of(path)


def facts_of(path):
    found = path.stat()
    return path.read_bytes(), found.st_mode, found.st_mtime_ns, found.st_uid, found.st_nlink


def on_file(blow):
    """Return an attack on a file that lies there."""

    def attack(folder):
        path, before = existing(folder)
        yield lambda: blow(path)
        listed = [each.name for each in folder.iterdir()]
        yield listed == ["weights.pt"] and facts_of(path) == before

    return attack


def on_open_file(mode, blow):
    """Return an attack through a file that the parent has open."""

    def attack(folder):
        path, before = existing(folder)
        with path.open(mode, buffering=0) as file:
            file.seek(5)
            yield lambda: blow(file)
            yield file.tell() == 5 and facts_of(path) == before

    return attack


def unbuffered_log(folder):
    with (folder / "log.txt").open("w+") as log:
        log.write("parent\n")
        log.flush()
        log.write("not yet written\n")
        yield lambda: (log.write("child\n"), log.flush(), os.fsync(log.fileno()))
        log.flush()
        yield (folder / "log.txt").read_text() == "parent\nnot yet written\n"


def position_in_folder(folder):
    (folder / "one").touch()
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield lambda: os.lseek(descriptor, 1, os.SEEK_SET)  # in memory a folder has no end to go to
        yield os.lseek(descriptor, 0, os.SEEK_CUR) == 0
    finally:
        os.close(descriptor)


def sqlite_open_in_parent(folder):
    database = sqlite3.connect(folder / "data.sqlite")
    database.execute("create table t (x)")
    database.commit()

    def blow():
        database.execute("insert into t values (1)")
        database.commit()

    yield blow
    yield database.execute("select count(*) from t").fetchone() == (0,)
    database.close()


def sqlite_opened_by_child(folder):
    yield lambda: sqlite3.connect(folder / "new.sqlite").execute("create table t (x)")
    yield list(folder.iterdir()) == []


# ── memory ────────────────────────────────────────────────────────────────────────────────────


def tensorboard_opened_by_child(folder):
    def blow():
        from torch.utils.tensorboard import SummaryWriter

        SummaryWriter(folder).close()

    before = sorted(folder.iterdir())
    yield blow
    yield sorted(folder.iterdir()) == before


def memory_of_tensors(_folder):
    shared = torch.ones(5).share_memory_()
    yield lambda: shared.mul_(3)
    yield bool((shared == 1).all())


def memory_of_numpy(folder):
    mapped = np.memmap(folder / "data.bin", "float32", "w+", shape=(3000,))
    mapped[:] = 1
    yield lambda: (mapped.__setitem__(slice(None), 5), mapped.flush())
    yield float(mapped.sum()) == 3000


def memory_without_file(_folder):
    with mmap.mmap(-1, 8192) as shared:
        shared[:3] = b"abc"
        yield lambda: shared.__setitem__(slice(0, 3), b"xyz")
        yield shared[:3] == b"abc"


def memory_of_multiprocessing(_folder):
    value = multiprocessing.Value("d", 1.0)
    block = shared_memory.SharedMemory(create=True, size=100)
    block.buf[0] = 7
    try:
        yield lambda: (setattr(value, "value", 2.0), block.buf.__setitem__(0, 9))
        yield (value.value, block.buf[0]) == (1.0, 7)
    finally:
        block.close()
        block.unlink()


def semaphore(_folder):
    lock = multiprocessing.Semaphore(1)
    yield lambda: lock.acquire(timeout=1)
    yield lock.acquire(block=False)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return torch.full((4,), float(index))


def batch_of_worker(_folder):
    batches = iter(torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2))
    batch = next(batches)
    before = batch.clone()
    yield lambda: batch.mul_(100)
    rest = [batch, *batches]
    yield torch.equal(batch, before) and torch.cat(rest)[:, 0].tolist() == list(range(32))


def next_batch_of_worker(_folder):
    batches = iter(torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=1, prefetch_factor=2))
    first = next(batches)
    yield lambda: next(batches)
    yield torch.cat([first, *batches])[:, 0].tolist() == list(range(32))


# ── what others read and write ────────────────────────────────────────────────────────────────


def sent_to_socket(_folder):
    here, there = socket.socketpair()
    with here, there:
        yield lambda: here.send(b"hello")
        there.setblocking(False)
        yield nothing_in(there.recv)


def socket_shut_down(_folder):
    here, there = socket.socketpair()
    with here, there:
        yield lambda: here.shutdown(socket.SHUT_RDWR)
        there.setblocking(False)
        yield nothing_in(there.recv, at_end=False)


def connected(_folder):
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield lambda: socket.create_connection(server.getsockname(), 1)
        server.setblocking(False)
        yield nothing_in(lambda size: server.accept()[0].close() or "somebody")


def read_from_pipe(_folder):
    reading, writing = os.pipe()
    os.write(writing, b"for the parent")
    yield lambda: os.read(reading, 100)
    os.set_blocking(reading, False)
    yield not nothing_in(lambda size: os.read(reading, size))
    os.close(reading), os.close(writing)


def written_to_pipe(_folder):
    reading, writing = os.pipe()
    yield lambda: os.write(writing, b"x")
    os.set_blocking(reading, False)
    yield nothing_in(lambda size: os.read(reading, size))
    os.close(reading), os.close(writing)


def named_pipe(folder):
    os.mkfifo(folder / "fifo")
    descriptor = os.open(folder / "fifo", os.O_RDWR | os.O_NONBLOCK)
    os.write(descriptor, b"for the parent")
    yield lambda: os.read(os.open(folder / "fifo", os.O_RDONLY | os.O_NONBLOCK), 100)
    yield not nothing_in(lambda size: os.read(descriptor, size))
    os.close(descriptor)


def pipe_of_parent_under_proc(_folder):
    reading, writing = os.pipe()
    os.write(writing, b"for the parent")
    path = f"/proc/{os.getpid()}/fd/{reading}"
    yield lambda: os.read(os.open(path, os.O_RDONLY | os.O_NONBLOCK), 100)
    os.set_blocking(reading, False)
    yield not nothing_in(lambda size: os.read(reading, size))
    os.close(reading), os.close(writing)


def queue(_folder):
    shared = multiprocessing.SimpleQueue()
    shared.put("first")
    yield lambda: (shared.get(), shared.put("from the child"))
    yield not shared.empty() and shared.get() == "first" and shared.empty()
    shared.close()


def event_descriptor(_folder):
    descriptor = os.eventfd(0, os.EFD_NONBLOCK)
    yield lambda: os.eventfd_write(descriptor, 3)
    yield nothing_in(lambda size: os.eventfd_read(descriptor))
    os.close(descriptor)


def nothing_in(read, at_end=True):
    """Tell whether nothing can be read; an end of what can be read counts as nothing unless `at_end` is False."""
    try:
        found = read(100)
        return at_end and not found
    except BlockingIOError:
        return True


def terminal_changed(_folder):
    main, terminal = os.openpty()
    before = termios.tcgetattr(terminal)
    changed = [0, 0, 0, 0, *before[4:]]
    name = os.ttyname(terminal)

    def by_name():
        opened = os.open(name, os.O_RDONLY | os.O_NOCTTY)
        termios.tcsetattr(opened, termios.TCSANOW, changed)

    yield lambda: both(lambda: termios.tcsetattr(terminal, termios.TCSANOW, changed), by_name)
    yield termios.tcgetattr(terminal) == before
    os.close(main), os.close(terminal)


def terminal_written(_folder):
    main, terminal = os.openpty()
    yield lambda: os.write(terminal, b"x")
    os.set_blocking(main, False)
    yield nothing_in(lambda size: os.read(main, size))
    os.close(main), os.close(terminal)


def both(*blows):
    """Strike each, whatever becomes of the one before; raise what the first said."""
    errors = []
    for blow in blows:
        try:
            blow()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]


# ── processes ─────────────────────────────────────────────────────────────────────────────────


def signalled(blow):
    """Return an attack that sends its parent a signal."""

    def attack(_folder):
        heard = []
        before = signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
        try:
            handle = os.pidfd_open(os.getpid())
            yield lambda: blow(handle)
            os.close(handle)
            yield heard == []
        finally:
            signal.signal(signal.SIGUSR1, before)

    return attack


def started(start):
    """Return an attack that starts a process, which makes a file."""

    def attack(folder):
        yield lambda: start(folder / "made")
        yield not (folder / "made").exists()

    return attack


def touch(path):
    """Run in a process that was forked by the child: what is left of it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.close(descriptor)


def forked_by(fork):
    def start(path):
        process = fork()
        if process == 0:
            try:
                touch(path)
            finally:
                os._exit(0)
        os.waitpid(process, 0)

    return start


def scheduling(_folder):
    parent = os.getpid()

    def facts():
        return (
            os.getpriority(os.PRIO_PROCESS, parent),
            os.sched_getaffinity(parent),
            os.sched_getscheduler(parent),
            resource.prlimit(parent, resource.RLIMIT_NOFILE),
        )

    before = facts()
    one = {min(before[1])}
    soft, hard = before[3]
    yield lambda: both(
        lambda: os.setpriority(os.PRIO_PROCESS, parent, before[0] + 1),
        lambda: os.sched_setaffinity(parent, one),
        lambda: os.sched_setscheduler(parent, os.SCHED_BATCH, os.sched_param(0)),
        lambda: resource.prlimit(parent, resource.RLIMIT_NOFILE, (soft - 1, hard)),
    )
    after = facts()
    os.sched_setaffinity(parent, before[1])
    os.sched_setscheduler(parent, before[2], os.sched_param(0))
    resource.prlimit(parent, resource.RLIMIT_NOFILE, before[3])
    yield after == before


def memory_of_parent(_folder):
    """Written through another system call, or through its file under /proc."""
    place = ctypes.create_string_buffer(b"parent", 6)
    parent, address = os.getpid(), ctypes.addressof(place)

    class Stretch(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    def by_call():
        mine = ctypes.create_string_buffer(b"change", 6)
        ours, theirs = Stretch(ctypes.addressof(mine), 6), Stretch(address, 6)
        call("process_vm_writev", parent, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)

    def by_file():
        descriptor = os.open(f"/proc/{parent}/mem", os.O_RDWR)
        os.pwrite(descriptor, b"change", address)

    yield lambda: both(by_call, by_file)
    yield place.raw == b"parent"


ATTACKS = {
    "torch.save over a file": on_file(lambda path: torch.save({"weight": torch.zeros(3)}, path)),
    "torch.save of a new file": on_file(lambda path: torch.save({}, path.with_name("new.pt"))),
    "numpy.save": on_file(lambda path: np.save(path.with_name("new.npy"), np.ones(3))),
    "open for writing": on_file(lambda path: path.open("w")),
    "open for appending": on_file(lambda path: path.open("ab", buffering=0).write(b"x")),
    "unlink": on_file(os.unlink),
    "rename": on_file(lambda path: path.rename(path.with_name("other"))),
    "replace": on_file(lambda path: path.replace(path.with_name("other"))),
    "mkdir": on_file(lambda path: path.with_name("new").mkdir()),
    "symlink": on_file(lambda path: path.with_name("new").symlink_to(path)),
    "link": on_file(lambda path: path.with_name("new").hardlink_to(path)),
    "mkfifo": on_file(lambda path: os.mkfifo(path.with_name("new"))),
    "truncate": on_file(lambda path: os.truncate(path, 3)),
    "chmod": on_file(lambda path: path.chmod(0o640)),
    "utime": on_file(lambda path: os.utime(path, (0, 0))),
    "chmod of a file that is read": on_open_file("rb", lambda file: os.fchmod(file.fileno(), 0o640)),
    "utime of a file that is read": on_open_file("rb", lambda file: os.utime(file.fileno(), (0, 0))),
    "read on": on_open_file("rb", lambda file: file.read(100)),
    "seek": on_open_file("rb", lambda file: file.seek(50)),
    "write into an open file": on_open_file("r+b", lambda file: file.write(b"child")),
    "append to an open file": on_open_file("ab", lambda file: file.write(b"child")),
    "truncate an open file": on_open_file("r+b", lambda file: file.truncate(0)),
    "open it anew for writing": on_open_file(
        "rb", lambda file: Path(f"/proc/self/fd/{file.fileno()}").write_bytes(b"child")
    ),
    "write into a log": unbuffered_log,
    "position in a folder": position_in_folder,
    "SQLite, open": sqlite_open_in_parent,
    "SQLite, new": sqlite_opened_by_child,
    "TensorBoard, new": tensorboard_opened_by_child,
    "shared tensor": memory_of_tensors,
    "memory map of NumPy": memory_of_numpy,
    "memory map without a file": memory_without_file,
    "shared memory of multiprocessing": memory_of_multiprocessing,
    "semaphore": semaphore,
    "batch that a worker made": batch_of_worker,
    "next batch of a worker": next_batch_of_worker,
    "send to a socket": sent_to_socket,
    "shut a socket down": socket_shut_down,
    "connect": connected,
    "read from a pipe": read_from_pipe,
    "write to a pipe": written_to_pipe,
    "read from a named pipe": named_pipe,
    "read from the parent's pipe under /proc": pipe_of_parent_under_proc,
    "queue": queue,
    "event descriptor": event_descriptor,
    "settings of a terminal": terminal_changed,
    "write to a terminal": terminal_written,
    "kill": signalled(lambda handle: os.kill(os.getppid(), signal.SIGUSR1)),
    "kill by pidfd": signalled(lambda handle: signal.pidfd_send_signal(handle, signal.SIGUSR1)),
    "kill by a pidfd of its own": signalled(
        lambda handle: signal.pidfd_send_signal(os.pidfd_open(os.getppid()), signal.SIGUSR1)
    ),
    "fork": started(forked_by(os.fork)),
    "fork by clone": started(forked_by(lambda: call("clone", signal.SIGCHLD, 0, 0, 0, 0))),
    "subprocess": started(lambda path: subprocess.run(["touch", str(path)], check=True)),
    "posix_spawn": started(
        lambda path: os.waitpid(os.posix_spawn("/bin/touch", ["touch", str(path)], {}), 0)
    ),
    "exec": started(
        lambda path: os.execv(sys.executable, [sys.executable, "-c", f"open({str(path)!r}, 'w')"])
    ),
    "scheduling and limits": scheduling,
    "memory of the parent": memory_of_parent,
}
REFUSED = ("io_uring_setup", "userfaultfd", "shmget", "msgget", "ptrace", "ioprio_set", "rt_sigqueueinfo")
