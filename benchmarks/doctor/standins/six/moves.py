# SPDX-License-Identifier: Apache-2.0
"""As in Python 3."""

import urllib.error
import urllib.request

__all__ = ["urllib"]
