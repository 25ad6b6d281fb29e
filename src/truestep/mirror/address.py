# SPDX-License-Identifier: Apache-2.0
"""Where a run's mirror is: what may be written, and what the environment adds."""

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from truestep.core.errors import OptionError
from truestep.core.os_specific import path_from_file_url

SCHEMES = ("s3", "gs", "az", "file")
VARIABLE = "TRUESTEP_MIRROR"
LEASE_VARIABLE = "TRUESTEP_MIRROR_LEASE_SECONDS"
LEASE_SECONDS = 60.0
_OF_ANY_KIND = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_OF_A_PATH = re.compile(rf"^({'|'.join(SCHEMES)}):/+")


def is_mirror_address(text: Any) -> bool:
    """Whether a text names a place in an object store rather than a path."""
    return isinstance(text, str) and any(text.startswith(f"{scheme}://") for scheme in SCHEMES)


def check_mirror_address(address: Any) -> str:
    """Return an address without a slash at its end; raises an OptionError for what is none."""
    if not is_mirror_address(address):
        raise OptionError(
            f"mirror={address!r}: give the address of a place in an object store that is this run's alone, "
            "mirror='s3://bucket/runs/x'; also gs://, az:// and, for a shared disk, file:///folder."
        )
    parts = urlsplit(address)
    path = unquote(parts.path).rstrip("/")
    if not (address + path).isprintable() or {"", ".", ".."} & {*path.split("/")[1:]}:
        raise OptionError(
            f"mirror={address!r}: a place in a store is named by a path without '.', '..', '//' and control characters, "
            f"{parts.scheme}://bucket/runs/x."
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise OptionError(
            f"The mirror's address {parts.scheme}://... holds more than a bucket and a path. Credentials and options are read from "
            "the environment alone (AWS_ACCESS_KEY_ID and the like), so that no file of the run holds them; leave them out here."
        )
    if parts.scheme == "file" and (parts.netloc or not path):
        raise OptionError(f"mirror={address!r}: write file:/// and an absolute path, file:///shared/runs/x.")
    if parts.scheme != "file" and not parts.netloc:
        raise OptionError(f"mirror={address!r} names no bucket: write {parts.scheme}://bucket/runs/x.")
    return str(address).rstrip("/")


def mirror_address_or_none(source: Any) -> str | None:
    """Return the address that a source is, None for a path and for whatever else; `Path("s3://a/b")` has lost a slash."""
    text = os.fspath(source) if isinstance(source, os.PathLike) else source
    if isinstance(source, os.PathLike) and isinstance(text, str):
        text = _OF_A_PATH.sub(lambda match: f"{match[1]}://{'/' * (match[1] == 'file')}", text)
    if is_mirror_address(text):
        return check_mirror_address(text)
    if isinstance(text, str) and _OF_ANY_KIND.match(text):
        raise OptionError(
            f"{text.partition('?')[0]!r} is an address that nothing here reads. A run is read from its directory, or from its "
            "mirror: s3://bucket/runs/x, gs://, az:// or file:///shared/runs/x. Fetch a file of weights first."
        )
    return None


def mirror_address_of_run(given: Any, directory: Any, chosen: Path) -> str | None:
    """Return the address of a run's mirror, None for none.

    `given` is what `ts.Run(mirror=...)` was told, `directory` the run's directory as it was told, `chosen` the one it has got.
    Where nothing was given, TRUESTEP_MIRROR is the address of all runs, to which the directory is added.
    """
    if given is not None:
        return _refuse_mirror_inside_run_folder(check_mirror_address(given), chosen)
    if not (base := os.environ.get(VARIABLE)):
        return None
    path = Path(directory) if directory is not None else Path("runs") / chosen.name
    # with resume="anew" the run has got a numbered name beside the one that was given
    parts = [chosen.name] if path.is_absolute() else [*path.parts[:-1], chosen.name]
    if ".." in parts:
        raise OptionError(
            f"The run directory {str(path)!r} leads upwards, so that {VARIABLE} can't be continued by it. Give a path below the "
            "working directory, an absolute one, or ts.Run(..., mirror=...)."
        )
    return _refuse_mirror_inside_run_folder(
        "/".join([check_mirror_address(base), *map(quote, parts)]), chosen
    )


def _refuse_mirror_inside_run_folder(address: str, directory: Path) -> str:
    """Return an address; raises an OptionError for a shared disk's folder that lies in the run's own directory."""
    is_file = address.startswith("file://")
    place = Path(path_from_file_url(unquote(urlsplit(address).path))) if is_file else None
    own = Path(os.path.realpath(directory))
    if place is not None and own in (real := Path(os.path.realpath(place)), *real.parents):
        raise OptionError(
            f"The mirror {address} lies in the run's directory {directory}, and would be lost with it. Give a folder of another "
            "disk: file:///shared/runs/x."
        )
    return address


def lease_seconds() -> float:
    """Return how long a lease lasts: 60 s, unless the environment says otherwise."""
    text = os.environ.get(LEASE_VARIABLE, str(LEASE_SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.2 <= seconds <= 86_400:
        raise OptionError(f"{LEASE_VARIABLE}={text!r}: give seconds, 0.2 to 86400; 60 is usual.")
    return seconds
