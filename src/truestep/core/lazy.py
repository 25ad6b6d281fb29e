# SPDX-License-Identifier: Apache-2.0
"""Public names of a package that stand once, in its stub, and are imported when they are first asked for.

A package's `__init__.pyi` lists its names as `from module import name as name`. Type checkers and editors read that file, and
at run time it says where a name is found, so that `import truestep` costs next to nothing and works beside a broken torch.
"""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

_NAME = re.compile(r"^from (truestep[\w.]*) import (\w+) as \2$", re.MULTILINE)


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of the package whose `__init__.py` is `file`."""
    stub = Path(file).with_suffix(".pyi").read_text(encoding="utf-8")
    where = {name: module for module, name in _NAME.findall(stub)}
    names = sorted(where, key=str.casefold)

    def get(name: str) -> Any:
        if name not in where:
            raise AttributeError(_unknown(package, name, names))
        try:
            home = where[name]
            value = import_module(f"{home}.{name}") if home == package else getattr(import_module(home), name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ModuleNotFoundError(
                f"{package}.{name} needs PyTorch, missing here. Install it with: pip install 'truestep[torch]'",
                name="torch",
            ) from error
        # From now on Python finds it without asking `__getattr__`.
        setattr(sys.modules[package], name, value)
        return value

    def names_shown() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    return get, names_shown, names


def _unknown(package: str, name: str, names: list[str]) -> str:
    from truestep.core.errors import did_you_mean

    said = f"module {package!r} has no attribute {name!r}."
    # tools ask every module for such names, thousands of times: looking for the nearest one takes a millisecond
    if name.startswith("__"):
        return said
    return f"{said} {did_you_mean(name, names)}dir({package}) lists all names."
