# SPDX-License-Identifier: Apache-2.0
"""Training for PyTorch in which every step is exact, and a doctor for the code you already have.

The public names stand in `__init__.pyi`; each is imported when it is first asked for.
"""

from typing import Any

from truestep.core.lazy_imports import lazy_names

_get, __dir__, __all__ = lazy_names(__name__, __file__, called="ts")


def __getattr__(name: str) -> Any:
    if name != "__version__":
        return _get(name)
    from importlib.metadata import version

    return version("truestep")
