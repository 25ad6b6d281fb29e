# SPDX-License-Identifier: Apache-2.0
"""What takes long to find out and can be found out again: documents kept in a folder of the platform, each by a key.

A document is written whole or not at all, and carries a checksum: one that is damaged is as if it were not there.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from truestep.core.atomic_files import read_regular_file, replacing_file


def cache_folder(part: str) -> Path:
    """Return the folder of a part of Truestep where this platform keeps such things, or under the one that TRUESTEP_CACHE names."""
    if own := os.environ.get("TRUESTEP_CACHE"):
        return Path(own) / part
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "truestep" / part


def cache_state_of_files(files: Iterable[Path]) -> str:
    """Return what tells one state of source files from another."""
    stats = [(str(each), each.stat()) for each in sorted(files)]
    return repr([(path, stat.st_mtime_ns, stat.st_size) for path, stat in stats])


def cache_key(*parts: object) -> str:
    """Return the name of a document: of these parts and this Python."""
    return hashlib.sha256(repr((parts, sys.version)).encode("utf-8", "surrogateescape")).hexdigest()


def read_cached(folder: Path, key: str) -> Any:
    """Return a document, None where it is not kept whole."""
    try:
        checksum, _, body = read_regular_file(folder / key).partition(b"\n")
        return json.loads(body) if hashlib.sha256(body).hexdigest().encode() == checksum else None
    except (OSError, ValueError, RecursionError):
        return None


def write_cached(folder: Path, key: str, document: Any) -> None:
    """Keep a document; a folder that can't be written to, or what is no JSON, keeps nothing."""
    with suppress(OSError, TypeError, ValueError):
        body = json.dumps(document).encode()
        folder.mkdir(parents=True, exist_ok=True)
        # 0600: what is kept tells of this user's code and runs.
        with replacing_file(folder / key, 0o600, is_durable=False) as file:
            file.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def forget_oldest_cached(folder: Path, most: int) -> None:
    """Delete the documents that were not written for longest, where there are more than so many."""
    with suppress(OSError):
        entries = sorted(folder.iterdir(), key=lambda each: each.stat().st_mtime, reverse=True)
        for each in entries[most:]:
            each.unlink()
