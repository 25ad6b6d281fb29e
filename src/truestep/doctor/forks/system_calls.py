# SPDX-License-Identifier: Apache-2.0
"""The system calls that a sealed child may make, with their numbers; what is not listed here is refused.

Numbers: the kernel's `unistd_64.h` (x86_64) and `asm-generic/unistd.h` (aarch64). A call belongs into the list if all that it can
change is the child's own: its memory, its descriptors (each of them opened anew), its own signals and timers.
"""

import os

# AUDIT_ARCH_* of the kernel's audit.h, by what platform.machine() says
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# `name x86_64 aarch64`; 0 where the processor has no such call
_ALLOWED = """
read 0 63, write 1 64, close 3 57, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, preadv 295 69,
pwritev 296 70, preadv2 327 286, pwritev2 328 287, lseek 8 62, dup 32 23, dup2 33 0, dup3 292 24,
close_range 436 436, stat 4 0, lstat 6 0, fstat 5 80, newfstatat 262 79, statx 332 291, access 21 0,
faccessat 269 48, faccessat2 439 439, readlink 89 0, readlinkat 267 78, getdents 78 0, getdents64 217 61,
getcwd 79 17, statfs 137 43, fstatfs 138 44, getxattr 191 8, lgetxattr 192 9, fgetxattr 193 10,
listxattr 194 11, chdir 80 49, fchdir 81 50, umask 95 166, fadvise64 221 223, readahead 187 213, fsync 74 82,
fdatasync 75 83, ftruncate 77 46, fallocate 285 47, sendfile 40 71, copy_file_range 326 285, mmap 9 222,
munmap 11 215, mprotect 10 226, mremap 25 216, madvise 28 233, brk 12 214, mincore 27 232, msync 26 227,
mlock 149 228, munlock 150 229, memfd_create 319 279, membarrier 324 283, pipe 22 0, pipe2 293 59, poll 7 0,
ppoll 271 73, select 23 0, pselect6 270 72, epoll_create 213 0, epoll_create1 291 20, epoll_ctl 233 21,
epoll_wait 232 0, epoll_pwait 281 22, eventfd 284 0, eventfd2 290 19, timerfd_create 283 85,
timerfd_settime 286 86, timerfd_gettime 287 87, futex 202 98, set_robust_list 273 99, get_robust_list 274 100,
set_tid_address 218 96, rseq 334 293, sched_yield 24 124, sched_getaffinity 204 123, sched_getparam 143 121,
sched_getscheduler 145 120, sched_get_priority_max 146 125, sched_get_priority_min 147 126, getcpu 309 168,
exit 60 93, exit_group 231 94, wait4 61 260, waitid 247 95, rt_sigaction 13 134, rt_sigprocmask 14 135,
rt_sigreturn 15 139, rt_sigpending 127 136, rt_sigtimedwait 128 137, rt_sigsuspend 130 133,
sigaltstack 131 132, restart_syscall 219 128, pause 34 0, getpid 39 172, getppid 110 173, gettid 186 178,
getpgid 121 155, getpgrp 111 0, getsid 124 156, getuid 102 174, geteuid 107 175, getgid 104 176,
getegid 108 177, getgroups 115 158, getresuid 118 148, getresgid 120 150, getpriority 140 141,
getrlimit 97 163, getrusage 98 165, times 100 153, uname 63 160, sysinfo 99 179, getrandom 318 278,
arch_prctl 158 0, capget 125 90, clock_gettime 228 113, clock_getres 229 114, clock_nanosleep 230 115,
nanosleep 35 101, gettimeofday 96 169, time 201 0, alarm 37 0, setitimer 38 103, getitimer 36 102,
timer_create 222 107, timer_settime 223 110, timer_gettime 224 108, timer_delete 226 111
"""

# refused with "no such call": the C library and others then go another way
_MISSING = "clone3 435 435, openat2 437 437, flock 73 32"

WRITES = (
    os.O_WRONLY
    | os.O_RDWR
    | os.O_CREAT
    | os.O_TRUNC
    | getattr(os, "O_TMPFILE", 0) & ~getattr(os, "O_DIRECTORY", 0)
)
CLONE_THREAD = 0x00010000
# duplicating a descriptor, its flags, a pipe's size, seals: nothing of locks, owners, leases or notices
DESCRIPTOR_COMMANDS = (0, 1, 2, 3, 4, 1030, 1032, 1033, 1034)
# what a terminal is like, how much can be read, close-on-exec: nothing that changes a terminal or a device
DEVICE_COMMANDS = (0x5401, 0x5413, 0x541B, 0x5450, 0x5451)
# a thread's name, and with whom it ends
PROCESS_COMMANDS = (2, 15, 16)


def allowed_call_numbers(machine: str) -> dict[str, int]:
    """Return the calls that are allowed whatever their arguments, by name."""
    return _parse_call_table(_ALLOWED, machine)


def missing_call_numbers(machine: str) -> dict[str, int]:
    """Return the calls that a sealed child is told not to exist."""
    return _parse_call_table(_MISSING, machine)


def call_number(name: str, machine: str) -> int | None:
    """Return the number of a call that is allowed with some arguments only, None where the processor has no such call."""
    return _parse_call_table(_BY_ARGUMENT, machine).get(name)


_BY_ARGUMENT = (
    "open 2 0, openat 257 56, fcntl 72 25, ioctl 16 29, clone 56 220, kill 62 129, tgkill 234 131, prctl 157 167, "
    "prlimit64 302 261, sched_setaffinity 203 122"
)


def _parse_call_table(table: str, machine: str) -> dict[str, int]:
    """Return the numbers of a table for a processor; 0 is `read` on x86_64, and no call on aarch64's side of it."""
    column = 1 + list(ARCHITECTURES).index(machine)
    rows = [row.split() for row in table.replace("\n", " ").split(",")]
    return {row[0]: int(row[column]) for row in rows if row[column] != "0" or row[0] == "read"}
