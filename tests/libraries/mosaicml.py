# SPDX-License-Identifier: Apache-2.0
"""MosaicML Streaming without torchvision, which it imports for image data sets alone, and which must be of torch's build."""

import re
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BEGUN = time.time()
SHARED_NOTE = re.compile(r"\d{6}_[a-z_]+")


def remove_shared_notes() -> None:
    """Remove the notes of who reads what that killed trainings left in shared memory: Streaming's own function for that stops at
    the first gap between their numbers."""
    for path in Path("/dev/shm").iterdir():
        if SHARED_NOTE.fullmatch(path.name) and path.stat().st_mtime >= BEGUN:
            path.unlink(missing_ok=True)


def load_streaming() -> Any:
    """Import `streaming`; where torchvision is not there, with empty classes in its place."""
    if "streaming" not in sys.modules:
        stubs = [] if _has_torchvision() else [*_stubs()]
        import streaming  # noqa: F401

        for name in stubs:
            del sys.modules[name]
    return sys.modules["streaming"]


def _has_torchvision() -> bool:
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError):  # RuntimeError: of another torch
        return False
    return True


def _stubs() -> Iterator[str]:
    """Put empty modules in the place of torchvision's; yield their names."""
    import transformers.feature_extraction_utils  # noqa: F401 - it asks whether torchvision is there

    for name in ("", ".datasets", ".transforms", ".transforms.functional"):
        module: Any = types.ModuleType(f"torchvision{name}")
        sys.modules[module.__name__] = module
        module.VisionDataset = module.CIFAR10 = type("VisionDataset", (), {})
        module.to_tensor = None
        yield module.__name__
