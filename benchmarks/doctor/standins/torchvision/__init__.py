# SPDX-License-Identifier: Apache-2.0
"""A stand-in for torchvision: random images of the right shapes, nothing downloaded."""

from . import datasets, models, transforms, utils

__all__ = ["datasets", "models", "transforms", "utils"]
__version__ = "0.0"
