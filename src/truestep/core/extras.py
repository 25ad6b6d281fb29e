# SPDX-License-Identifier: Apache-2.0
"""Packages that only some pieces need: where one is missing, the message names the extra that brings it."""

from collections.abc import Iterator
from contextlib import contextmanager

from truestep.core.errors import MissingPackageError


@contextmanager
def needs_extra(extra: str, *packages: str) -> Iterator[None]:
    """Answer a failing import of one of `packages` with what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in packages:
            raise
        raise MissingPackageError(
            f"{missing} is not installed. Install it with: pip install 'truestep[{extra}]'", name=missing
        ) from error
