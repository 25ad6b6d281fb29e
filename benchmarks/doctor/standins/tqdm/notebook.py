# SPDX-License-Identifier: Apache-2.0
"""As without a notebook."""

from . import tqdm

__all__ = ["tqdm"]
