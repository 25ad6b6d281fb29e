# SPDX-License-Identifier: Apache-2.0
"""What an object of no class in sight carries: a namespace, a library's configuration, a dict, into whatever function."""

import ast
from itertools import chain

from truestep.doctor.source.classes import ProgramClasses, Values
from truestep.doctor.source.linking import SourceLinker
from truestep.doctor.source.names import Binding, Index, is_self

_MOST = 64  # expressions that are gone through from one back to what made it


class CarriedValues:
    """Answers what such an object was given. It is known by the calls that may have made it."""

    def __init__(self, index: Index, names: SourceLinker, classes: ProgramClasses, values: Values) -> None:
        self._index, self._names, self._classes, self._values = index, names, classes, values
        self._items: dict[object, list[tuple[ast.expr, ast.expr]]] | None = None  # `table["a"] = x`, by "a"

    def makers(self, node: ast.expr) -> set[ast.expr]:
        """Return the calls of libraries, or the dicts written out, that may have made an object."""
        found: set[ast.expr] = set()
        seen: set[ast.expr] = set()
        waiting = [node]
        while waiting and len(seen) < _MOST:
            each = waiting.pop()
            if each in seen:
                continue
            seen.add(each)
            given = self._values.results_of(each) if isinstance(each, ast.Call) else []
            if isinstance(each, (ast.Name, ast.Attribute)):
                given = [value for value in self._values.definitions(each) if value is not None]
            if not given and isinstance(each, (ast.Call, ast.Dict)):
                found.add(each)
            waiting += given
        return found

    def given_by_name(self, maker: ast.expr, name: str) -> list[ast.expr]:
        """Return what a call of a library was given by a name, under which what it makes has it; a number may be another there."""
        if not isinstance(maker, ast.Call) or self._classes.named(maker.func) is not None:
            return []
        is_namespace = (self._names.qualify(maker.func) or "").endswith("Namespace")
        given = [word.value for word in maker.keywords if word.arg == name]
        return [each for each in given if is_namespace or not isinstance(each, ast.Constant)]

    def written_to(self, makers: set[ast.expr], name: str) -> list[Binding]:
        """Return what gives an attribute of an object, known by the calls that made it, its value, in whatever function.

        Nothing where one is a plain constant: that takes the place of what the object may have had, as an option.
        """
        written = [
            (base, each) for base, each in self._index.written.get(name, []) if makers and not is_self(base)
        ]
        found = [each for base, each in written if makers & self.makers(base)]
        return [] if any(isinstance(each.value, ast.Constant) for each in found) else found

    def items_of(self, makers: set[ast.expr], key: object) -> list[ast.expr]:
        """Return what stands at a key of an object, known by what made it, since an item was given it, in whatever function."""
        if not makers:
            return []
        if self._items is None:
            self._items = {}
            for target, at, value in chain.from_iterable(self._index.items.values()):
                self._items.setdefault(at, []).append((target, value))
        return [value for target, value in self._items.get(key, ()) if makers & self.makers(target)]
