# SPDX-License-Identifier: Apache-2.0
"""MosaicML Streaming without torchvision, which it imports for its image data sets alone, and which must be of torch's own build."""

import sys
import types
from typing import Any


def load_streaming() -> Any:
    """Import `streaming`; where torchvision is not there, with empty classes in its place."""
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError):
        import transformers.feature_extraction_utils  # noqa: F401 - it asks whether torchvision is there

        names = (
            "torchvision",
            "torchvision.datasets",
            "torchvision.transforms",
            "torchvision.transforms.functional",
        )
        for name in names:
            sys.modules[name] = types.ModuleType(name)
        datasets: Any = sys.modules["torchvision.datasets"]
        datasets.VisionDataset = datasets.CIFAR10 = type("VisionDataset", (), {})
        functional: Any = sys.modules["torchvision.transforms.functional"]
        functional.to_tensor = None
    import streaming

    return streaming
