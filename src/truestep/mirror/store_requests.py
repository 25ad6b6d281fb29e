# SPDX-License-Identifier: Apache-2.0
"""Every request that a mirror is made of, one method each.

Nothing else in this room talks to a store, so that tests can make each request fail, stop before it, or lose its answer. What
sends or fetches contents is a task that can be cut off; obstore's own listing can't be (its stream, left behind, aborts the
interpreter's end in 0.12.1), and is asked for in the caller's thread.
"""

import asyncio
import os
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import unquote, urlsplit

from truestep.core.errors import MissingPackageError, RunDirectoryError, explain_missing_extra
from truestep.core.os_specific import path_from_file_url

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")

TIMEOUT_SECONDS = 120  # of one request: a piece of 8 MiB at 0.6 Mbit a second
_TOLD = re.compile(r"<Code>(\w+)</Code>\s*<Message>([^<]+)</Message>")
_FORBIDDEN = re.compile(r"\b(401 Unauthorized|403 Forbidden)\b")  # a listing has no kind of error for it
_TO_CHANGE = (
    "Say the bucket, and in the environment the account and the credentials, that may read, write and delete there; `truestep "
    "mirror check ADDRESS` tries them."
)
_NO_BUCKET = "there is no such bucket, or container"
_METADATA = "169.254.169.254"  # where machines of a cloud ask for credentials
_REFUSED = ("PermissionDeniedError", "UnauthenticatedError", "InvalidPathError", "NotSupportedError")


class StoreError(Exception):
    """A request failed."""


class StoreUnreachableError(StoreError):
    """It failed for a reason that may go away: the store or the line to it."""


class StoreRefusesError(StoreError):
    """It failed for a reason that stays: the credentials, say."""


@contextmanager
def translate_store_errors(address: str) -> Iterator[None]:
    """Raise a RunDirectoryError with what to do for a store that can't be reached, or does not let us in."""
    try:
        yield
    except StoreError as error:
        refused = isinstance(error, StoreRefusesError)
        raise RunDirectoryError(
            f"The mirror {address} can't be {'used' if refused else 'reached'}: {error}. Without it nobody knows where the run "
            f"stands. {_TO_CHANGE if refused else 'Start again when it can be.'}"
        ) from error
    except OSError as error:  # of the directory
        raise RunDirectoryError(f"What the mirror {address} holds can't be put here: {error}.") from error


class MirrorObjectStore:
    """The objects below an address. Paths are relative to it; a request ends with its answer or an error."""

    def __init__(self, address: str, *, is_made: bool = True) -> None:
        self.address = address
        self._store = _open_store(address, is_made=is_made)
        self._process, self._end = os.getpid(), float("inf")
        self._is_closed, self._closing = False, threading.Lock()
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run_event_loop, name="truestep-mirror", daemon=True)
        self._thread.start()

    def names(self, prefix: str) -> dict[str, int]:
        """Return the paths below a prefix that ends with a slash, with their sizes."""
        found = self._run_request_in_this_thread(lambda: self._store.list(prefix).collect())
        return {each["path"]: each["size"] for each in found}

    def folders(self, prefix: str) -> list[str]:
        """Return what the paths below a prefix go on with to the next slash."""
        found = self._run_request_in_this_thread(lambda: self._store.list_with_delimiter(prefix))
        return [*map(str, found["common_prefixes"])]

    def changed(self, path: str) -> datetime:
        """Return when an object was last written, by the store's clock."""
        return self._run_request_in_this_thread(lambda: self._store.head(path))["last_modified"]

    def get(self, path: str) -> bytes:
        """Return an object's content; raises FileNotFoundError where there is none."""

        async def fetch_bytes() -> bytes:
            return bytes(await (await self._store.get_async(path)).bytes_async())

        return self._run_request_before_deadline(fetch_bytes)

    def create(self, path: str, data: bytes, *, may_be_own: bool = True) -> None:
        """Make an object that must not exist; raises FileExistsError where another's is there.

        When the answer to a create is lost, the client asks again and is told that there is one: its own, which is no failure
        unless whether the store keeps to create-only is what is asked.
        """
        try:
            self._put_object(path, data, "create")
        except FileExistsError:
            if not may_be_own or self.get(path) != data:
                raise

    def put(self, path: str, data: bytes) -> None:
        """Make or replace an object."""
        self._put_object(path, data, "overwrite")

    def _put_object(self, path: str, data: bytes, mode: Literal["create", "overwrite"]) -> None:
        async def put_object_async() -> None:
            try:
                await self._store.put_async(path, data, mode=mode, use_multipart=False)
            except FileNotFoundError as error:
                raise StoreRefusesError(_NO_BUCKET) from error

        self._run_request_before_deadline(put_object_async)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove objects; one that is gone already is no failure."""

        async def delete_object_async(path: str) -> None:
            with suppress(FileNotFoundError):
                await self._store.delete_async([path])

        for path in paths:
            self._run_request_before_deadline(partial(delete_object_async, path))

    def set_deadline(self, moment: float) -> None:
        """Begin no request from that moment of `time.monotonic` on, and cut off those under way then."""

        def cancel_running_requests() -> None:
            for task in asyncio.all_tasks(self._loop):
                task.cancel()

        def schedule_cancellation() -> None:
            self._end = min(self._end, moment)
            self._loop.call_later(max(0.0, moment - time.monotonic()), cancel_running_requests)

        self._loop.call_soon_threadsafe(schedule_cancellation)

    def close(self) -> None:
        """End the thread that requests run in; requests under way are cut off."""
        if self._process != os.getpid():
            return
        with self._closing:  # what is asked for after this is refused: nobody would answer
            if not self._is_closed:
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._is_closed = True
        self._thread.join()

    def _run_event_loop(self) -> None:
        with self._runner:  # which cuts off what is under way at its end
            self._loop.run_forever()

    def _run_request_in_this_thread(self, request: Callable[[], T]) -> T:
        self._refuse_after_deadline()
        try:
            return request()
        except Exception as error:
            raise _short_store_error(error) from error

    def _run_request_before_deadline(self, request: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async def start_request() -> T:
            self._refuse_after_deadline()  # asked where the end is set, so that no request begins after the others were cut off
            return await request()

        if self._process != os.getpid():
            raise StoreUnreachableError("the mirror is another process's")
        with self._closing:
            if self._is_closed:
                raise StoreUnreachableError("the mirror is closed")
            answer = asyncio.run_coroutine_threadsafe(start_request(), self._loop)
        try:
            return answer.result()
        except (CancelledError, asyncio.CancelledError) as error:
            raise StoreUnreachableError("the time is over") from error
        except (FileNotFoundError, StoreError):
            raise
        except Exception as error:
            raise _short_store_error(error) from error

    def _refuse_after_deadline(self) -> None:
        if time.monotonic() >= self._end:
            raise StoreUnreachableError("the time is over")


def _open_store(address: str, *, is_made: bool) -> "ObjectStore":
    """Open a store; of a disk its folder is made, or has to be there."""
    try:
        with explain_missing_extra("remote", "obstore"):
            from obstore.store import LocalStore, from_url
    except MissingPackageError as error:
        raise MissingPackageError(f"A mirror needs obstore. {error}", name=error.name) from error
    # the client's own options, once given, hide AWS_ALLOW_HTTP from it
    endpoint, allowed = os.environ.get("AWS_ENDPOINT_URL", ""), os.environ.get("AWS_ALLOW_HTTP", "")
    plain = endpoint.startswith("http://") or allowed.lower() in ("1", "true")
    client: Any = {"connect_timeout": "5s", "timeout": f"{TIMEOUT_SECONDS}s", "allow_http": plain}
    retries: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}
    is_folder = address.startswith("file://")
    try:
        if is_folder:
            return LocalStore(path_from_file_url(unquote(urlsplit(address).path)), mkdir=is_made)
        return from_url(address, client_options=client, retry_config=retries)
    except Exception as error:  # without a request: of a server it is what the environment says, and stays
        raise (StoreUnreachableError if is_folder else StoreRefusesError)(
            str(_short_store_error(error))
        ) from error


def _short_store_error(error: Exception) -> Exception:
    """Return a failure with what the store said, or one line of what the client did: the rest is for its developers."""
    told = _TOLD.search(str(error))
    line = f"{told[2]} ({told[1]})" if told else str(error).partition("\n")[0]
    text = " ".join(line.split())[:300] or type(error).__name__
    if type(error).__name__ == "AlreadyExistsError":
        return FileExistsError(text)
    if "NoSuchBucket" in str(error):
        return StoreRefusesError(_NO_BUCKET)
    if _METADATA in text:
        text = (
            "the environment has no credentials (AWS_ACCESS_KEY_ID, GOOGLE_SERVICE_ACCOUNT, AZURE_STORAGE_ACCOUNT_KEY and the "
            f"like), and the machine's own service at {_METADATA} gives none"
        )
    refused = type(error).__name__ in _REFUSED or _METADATA in text or _FORBIDDEN.search(str(error))
    return StoreRefusesError(text) if refused else StoreUnreachableError(text)
