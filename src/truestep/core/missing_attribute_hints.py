# SPDX-License-Identifier: Apache-2.0
"""Objects that users hold: a name that one does not have is answered with what to write, asked for or set."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from truestep.core.errors import NO_GUESS, OptionError, did_you_mean
from truestep.core.guidance import guidance

_MOST_NAMES = 12
_WITH_OWN_WORDS = ("register_for_checkpointing",)
"""Functions of other libraries that ask whether there is a name, and say in their own words that there is none."""


def no_attribute_message(called: str, variable: str, name: str, known: Iterable[str]) -> str:
    """Return the message for a name that something does not have; `variable` is what the table of guidance calls it."""
    said = f"{called} has no attribute {name!r}"
    if name.startswith("_"):  # a protocol that somebody asks for
        return said
    if instead := guidance(f"{variable}.NAME", name):
        return f"{said}: {instead}."
    public = sorted(each for each in known if not each.startswith("_"))
    all_of_them = f"It has {', '.join(public)}." if 0 < len(public) <= _MOST_NAMES else ""
    return f"{said}. {did_you_mean(name, public) or all_of_them}".rstrip()


class HelpfulAttributes:
    """A name that it does not have can't be read: the AttributeError says what to write."""

    __slots__ = ()
    _called: ClassVar[str]
    """What it is called in a sentence: "A run"."""
    _variable: ClassVar[str]
    """What the table of guidance calls it: "run"."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say what to write."""
            known = () if name.startswith("_") else dir(self)  # which asks for names of its own
            said = no_attribute_message(self._called, self._variable, name, known)
            if sys._getframe(1).f_code.co_name in _WITH_OWN_WORDS:
                raise OptionError(said)
            raise AttributeError(said, name=name, obj=NO_GUESS)


class NotIterableObject(HelpfulAttributes):
    """It can't be taken apart or gone through either: the OptionError says what to write."""

    __slots__ = ()

    def __iter__(self) -> NoReturn:
        """Say what to write."""
        instead = guidance(f"{self._variable}.NAME", "__iter__")
        raise OptionError(
            f"{self._called} is one object, and can't be taken apart or gone through: {instead}."
        )


class NeverPickled(HelpfulAttributes):
    """It can't be pickled or copied: the OptionError says what to write."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Say what to write."""
        instead = guidance(f"{self._variable}.NAME", "__reduce__")
        raise OptionError(
            f"{self._called} can't be pickled or copied, as torch.save, copy.deepcopy and a worker process would: {instead}."
        )


class SealedAttributes(HelpfulAttributes):
    """Besides, once `_seal` is called, nothing can be set but what `_settable` names: nobody would read it."""

    _settable: ClassVar[frozenset[str]] = frozenset()
    _is_sealed = False

    def _seal(self) -> None:
        self._is_sealed = True

    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            """Set it where it is read; else say what to write."""
            if self._is_sealed and not name.startswith("_") and name not in self._settable:
                raise AttributeError(self._not_settable_message(name), name=name, obj=NO_GUESS)
            object.__setattr__(self, name, value)

    def _not_settable_message(self, name: str) -> str:
        if instead := guidance(f"{self._variable}.NAME = ...", name):
            return f"{self._called} is not told {name!r} by setting it: {instead}."
        if hasattr(self, name):
            return f"{name!r} of {self._called[0].lower()}{self._called[1:]} can be read, not set."
        said = no_attribute_message(self._called, self._variable, name, dir(self))
        return f"{said}{'' if said.endswith(('?', '.')) else '.'} Set, it would be read by nobody."
