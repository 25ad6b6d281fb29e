# SPDX-License-Identifier: Apache-2.0
"""Values that are called as if they were methods, `run.step(5)`: python says only that a number is not callable."""

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from torch.compiler import is_compiling

from truestep.core.call_site import is_read_attribute_called
from truestep.core.errors import OptionError
from truestep.core.guidance import guidance
from truestep.core.text_formatting import a_type

Kind = TypeVar("Kind", bound=type)


def refuse_property_calls(owner: str) -> Callable[[Kind], Kind]:
    """Decorate a class so that a property of its own is answered where a line calls it; `owner` is what a script calls it."""

    def decorate(kind: Kind) -> Kind:
        for name, found in list(vars(kind).items()):
            if isinstance(found, property) and found.fget is not None and not name.startswith("_"):
                setattr(kind, name, found.getter(_getter_refusing_calls(found.fget, f"{owner}.{name}")))
        return kind

    return decorate


def _getter_refusing_calls(read: Callable[[Any], Any], called: str) -> Callable[[Any], Any]:
    @functools.wraps(read)
    def read_property(self: Any) -> Any:
        value = read(self)
        if is_compiling() or callable(value) or not is_read_attribute_called(sys._getframe(1)):
            return value
        shown = f"a value ({value})" if isinstance(value, int | float | str) else a_type(value)
        instead = guidance("VALUE(...)", called) or f"write {called}."
        raise OptionError(f"{called} is no method, but {shown}: {instead}")

    return read_property
