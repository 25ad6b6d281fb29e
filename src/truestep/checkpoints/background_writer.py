# SPDX-License-Identifier: Apache-2.0
"""A thread that does one job at a time; its failure is raised where the next one is given, or waited for."""

import atexit
import os
import sys
import threading
from collections.abc import Callable


class BackgroundCheckpointWriter:
    """Runs jobs one after another, beside the caller.

    Each job has a thread of its own that is no daemon, so that the interpreter waits for it at exit.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        # exit functions are inherited by forked children, which must not report the parent's failure
        self._process = os.getpid()
        atexit.register(self._report_failed_save)

    @property
    def busy(self) -> bool:
        """Whether a job may still be running."""
        return self._thread is not None

    def start(self, job: Callable[[], None]) -> None:
        """Begin a job; `wait` must have been called since the last one."""
        assert self._thread is None
        thread = threading.Thread(target=self._run_writer_job, args=(job,), name="truestep-checkpoint")
        try:
            thread.start()
        except RuntimeError:
            self._run_writer_job(job)  # the system has no more threads: the caller waits for the job
        else:
            self._thread = thread

    def _run_writer_job(self, job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 -- raised again in the caller's thread
            self._error = error

    def wait(self) -> None:
        """Return when no job is running; raise what the last one failed with, once."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.join()
            except BaseException:
                self._thread = thread  # an interrupt while waiting: it is still running
                raise
        error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self) -> None:
        """Wait, and look no more after what may fail until the interpreter's end."""
        self.wait()
        atexit.unregister(self._report_failed_save)

    def _report_failed_save(self) -> None:
        """Say at the interpreter's end what nobody asked for: a failed save must not pass in silence."""
        if self._error is not None and os.getpid() == self._process:
            sys.stderr.write(f"truestep: {self._error}\n")
