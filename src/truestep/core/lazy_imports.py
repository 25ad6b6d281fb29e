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

_PACKAGE = __name__.partition(".")[0]
_NAME = re.compile(r"^from (truestep[\w.]*) import (\w+) as \2$", re.MULTILINE)


def lazy_names(
    package: str, file: str, *, called: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of the package whose `__init__.py` is `file`.

    `called`: what users call the package, "ts"; its functions then answer wrong calls with what to write.
    """
    where = _read_stub_names(Path(file))
    names = sorted(where, key=str.casefold)

    def get_attribute(name: str) -> Any:
        if name not in where:
            raise _unknown_name_error(package, name, names)
        value = _import_attribute(package, where[name], name, called)
        # From now on Python finds it without asking `__getattr__`.
        setattr(sys.modules[package], name, value)
        return value

    return get_attribute, lambda: sorted({*vars(sys.modules[package]), *names}), names


def _read_stub_names(file: Path) -> dict[str, str]:
    """Return the public names of the package whose `__init__.py` is `file`, each with the module that it is of."""
    text = file.with_suffix(".pyi").read_text(encoding="utf-8")
    return {name: module for module, name in _NAME.findall(text)}


def _import_attribute(package: str, home: str, name: str, called: str | None) -> Any:
    try:
        value = import_module(f"{home}.{name}") if home == package else getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(
            f"{package}.{name} needs PyTorch, missing here. Install it with: pip install 'truestep[torch]'",
            name="torch",
        ) from error
    if called is not None:
        from truestep.core.argument_errors import with_option_errors
        from truestep.core.module_call_errors import refuse_calls_of_modules

        refuse_calls_of_modules(sys.modules[package])
        value = with_option_errors(f"{called}.{name}", value)
        if home != package:
            setattr(import_module(home), name, value)  # by whichever way it is imported it is one
    return value


def _unknown_name_error(package: str, name: str, names: list[str]) -> Exception:
    # reads bytecode: 5 ms, which only a wrong name need pay
    from truestep.core.call_site import is_from_import_running
    from truestep.core.errors import NO_GUESS, did_you_mean
    from truestep.core.guidance import foreign_name_advice

    said = f"module {package!r} has no attribute {name!r}."
    # tools ask every module for such names, thousands of times: looking for the nearest one takes a millisecond
    if name.startswith("__"):
        return AttributeError(said)
    inner = _read_stub_names(Path(__file__).parents[1] / "nn" / "__init__.py") if package == _PACKAGE else {}
    near = did_you_mean(name, [*names, *(f"nn.{each}" for each in inner)])
    if name in inner:
        said += f" It is in ts.nn: ts.nn.{name}."
    else:
        said += f" {foreign_name_advice(name) or f'{near}dir({package}) lists all names.'}"
    if is_from_import_running(_PACKAGE):
        return ImportError(said, name=package)
    return AttributeError(said, name=name, obj=NO_GUESS)
