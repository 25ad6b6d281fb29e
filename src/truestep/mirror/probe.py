# SPDX-License-Identifier: Apache-2.0
"""Whether a store keeps its promise that of several that create one object one succeeds; several servers answer 200 to all."""

import uuid

from truestep.core.errors import RunDirectoryError
from truestep.mirror.objects import MirrorObjects

PROBES = "probe/"


def ignores_create_only(objects: MirrorObjects) -> bool:
    """Make an object twice, and say whether the second came through; it is removed again."""
    path = f"{PROBES}{uuid.uuid4().hex}"
    objects.create(path, b"first")
    try:
        objects.create_anew(path, b"second")
    except FileExistsError:
        return False
    finally:
        objects.remove([path])
    return True


def refuse_unfit_store(objects: MirrorObjects) -> None:
    """Raise a RunDirectoryError for a store in which two runs would not notice each other."""
    if ignores_create_only(objects):
        raise RunDirectoryError(
            f"The store of {objects.address} ignores create-only requests (If-None-Match: *): it answered that an object was made "
            "that was there already. Two machines that go on with one run would not notice each other there. Choose another store; "
            "`truestep mirror check ADDRESS` says whether one is fit."
        )
