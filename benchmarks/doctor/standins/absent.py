# SPDX-License-Identifier: Apache-2.0
"""For drivers: packages without their __init__.py, and modules that are not installed."""

import sys
import types
from unittest import mock


def bare_packages(*names):
    """Make packages of the repository importable without what their __init__.py asks for."""
    for name in names:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [name.replace(".", "/")]


def stand_ins(*names):
    """Put something in the place of modules that the driven code imports and does not need."""
    for name in names:
        sys.modules[name] = mock.MagicMock(name=name, __path__=[], __spec__=None)
