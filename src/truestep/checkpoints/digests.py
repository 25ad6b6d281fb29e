# SPDX-License-Identifier: Apache-2.0
"""The digests that content is checked by: SHA-256 in formats 1 and 2, BLAKE3 since format 3. Imports no torch."""

import hashlib
import re
from typing import NamedTuple, Protocol

_HEX = re.compile("[0-9a-f]{64}")


class Digest(Protocol):
    """Takes bytes, and says what they amount to."""

    def update(self, data: memoryview, /) -> object:
        """Take the next bytes."""

    def digest(self) -> bytes:
        """Return the 32 bytes for everything that was taken."""

    def hexdigest(self) -> str:
        """Return the same as 64 digits."""


class FileHashScheme(NamedTuple):
    """How files are hashed: by which digest, and whether in pieces of 8 MiB."""

    name: str
    in_pieces: bool = True


NEWEST_DIGEST = FileHashScheme("blake3")
_BY_FORMAT = {1: FileHashScheme("sha256", in_pieces=False), 2: FileHashScheme("sha256"), 3: NEWEST_DIGEST}


def hash_scheme_of_format(number: int) -> FileHashScheme:
    """Return how the files of a checkpoint of this format are hashed."""
    return _BY_FORMAT[number]


def new_digest(name: str, data: bytes | memoryview = b"") -> Digest:
    """Return a digest that has taken some bytes."""
    if name == "sha256":
        return hashlib.sha256(data)
    from blake3 import blake3  # at its first use: what reads no checkpoint need not import it

    return blake3(data)


def checked_hexdigest(text: object) -> str:
    """Return the digits of a digest; raises ValueError for what is none."""
    if not isinstance(text, str) or not _HEX.fullmatch(text):
        raise ValueError(f"{text!r} is no digest of 64 digits")
    return text
