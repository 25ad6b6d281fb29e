# SPDX-License-Identifier: Apache-2.0
import sys

from truestep.explainer.errors.checkpoints.class_of_file_missing import ClassOfFileMissing
from truestep.explainer.explainer import Crash, Explainer, Match


class PackageMissing(Explainer):
    """A module is imported that this Python does not find.

    Means: the package is not installed in the environment that runs, or the script's folder is not the one that was thought.

    Raises:
        import torchvison_is_not_here

    Works:
        import torch

    Fix: install it with the same Python: python -m pip install NAME (the name on the index may be another one). For a module of
    your own start from the project's folder, or with python -m package.module.

    Cases:
        `name=torch._six;`: torch._six is gone since torch 2.0: the package that imports it is older.
            Fix: update that package.
        `loaded=`: {root} is installed, but has no {name}: another version of it, or a file of your own called {root}.py.
        `root=apex;`: apex is not installed, and its mixed precision is gone.
            Fix: use torch.amp, which replaces it.
        otherwise: {root} is not found by this Python{here}. Fix: python -m pip install {package}.
        `inner=`: {name} is a part of {root}: {root} is missing, or another version of it is installed.
        otherwise: {root} is not found by this Python{here}.
    """

    types = ("ModuleNotFoundError", "ImportError")
    messages = (r"No module named '?(?P<name>[\w.]+)'?", r"import of (?P<name>[\w.]+) halted")
    not_in_a_log = "which Python ran, and what was installed there"

    @classmethod
    def match(cls, crash: Crash) -> Match | None:
        """Leave a class that a file asks for to its own error."""
        return None if ClassOfFileMissing.match(crash) else super().match(crash)

    def facts(self, crash: Crash, match: Match) -> dict[str, str]:
        root, _, inner = match["name"].partition(".")
        facts = {"root": root, "here": f" ({sys.prefix})" if crash.is_live else ""}
        facts |= {"inner": inner} if inner else {}
        facts |= {"loaded": "yes"} if inner and crash.is_live and root in sys.modules else {}
        return facts | ({"package": _NAMES[root]} if root in _NAMES else {})


# what is imported by another name than it is installed by
_NAMES = {
    "cv2": "opencv-python", "PIL": "pillow", "yaml": "pyyaml", "sklearn": "scikit-learn", "skimage":
    "scikit-image", "bs4": "beautifulsoup4", "attr": "attrs", "dateutil": "python-dateutil", "faiss":
    "faiss-cpu", "flash_attn": "flash-attn", "tensorboard": "tensorboard", "torchvision": "torchvision",
    "pycocotools": "pycocotools", "einops": "einops", "timm": "timm",
}  # fmt: skip
