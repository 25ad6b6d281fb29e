# SPDX-License-Identifier: Apache-2.0
"""How the tensors of a file differ from those a module expects. Imports no torch."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from truestep.core.errors import OptionError

Shape = tuple[int, ...]
WRAPPERS = ("module", "_orig_mod")  # put into names by DataParallel and DDP, and by torch.compile


@dataclass(frozen=True)
class MissingWeight:
    """A name that is expected and not there, with those there that come nearest."""

    name: str
    shape: Shape
    near: tuple[str, ...] = ()

    def __str__(self) -> str:
        near = f"; there is {' or '.join(self.near)}" if self.near else ""
        return f"missing     {self.name} {list(self.shape)}{near}"


@dataclass(frozen=True)
class UnexpectedWeight:
    """A name that is there and not expected."""

    name: str
    shape: Shape

    def __str__(self) -> str:
        return f"unexpected  {self.name} {list(self.shape)}"


@dataclass(frozen=True)
class ReshapedWeight:
    """A name that is there in another shape."""

    name: str
    expected: Shape
    found: Shape

    def __str__(self) -> str:
        return f"reshaped    {self.name} {list(self.found)}, expected {list(self.expected)}"


@dataclass(frozen=True)
class Differences:
    """Every name that is missing, unexpected or of another shape; false where there is none."""

    missing: tuple[MissingWeight, ...] = ()
    unexpected: tuple[UnexpectedWeight, ...] = ()
    reshaped: tuple[ReshapedWeight, ...] = ()
    num_loaded: int | None = None
    """How many tensors of the module were loaded, and how many it has; None where nothing was."""
    num_expected: int | None = None

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.reshaped)

    def __str__(self) -> str:
        counts = "" if self.num_loaded is None else f"{self.num_loaded} of {self.num_expected} tensors loaded"
        lines = [*map(str, (*self.missing, *self.unexpected, *self.reshaped))]
        if not lines:
            return f"{counts}; no differences".removeprefix("; ")
        return "\n".join([counts, *lines] if counts else lines)

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Say what to write, as a module that was loaded is called."""
        raise OptionError(
            "ts.load_weights fills the module that it is given, and returns what did not fit. Write "
            "ts.load_weights(net, source) on a line of its own, and call net."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the differences as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class WeightNameComparison:
    """Which found name belongs to which expected one, and what is left over."""

    pairs: dict[str, str]
    differences: Differences


def compare_weight_names(expected: Mapping[str, Shape], found: Mapping[str, Shape]) -> WeightNameComparison:
    """Pair names, seeing through what wrappers put into them, and list what differs."""
    pairs = {name: name for name in expected if name in found}
    pairs |= _match_without_wrapper_prefixes(
        [name for name in expected if name not in pairs], [name for name in found if name not in pairs]
    )
    used = set(pairs.values())
    left = {name: shape for name, shape in found.items() if name not in used}
    absent = {name: shape for name, shape in expected.items() if name not in pairs}
    reshaped = [
        ReshapedWeight(name, expected[name], found[other])
        for name, other in pairs.items()
        if expected[name] != found[other]
    ]
    same = _candidates_of_same_shape(absent, left)
    differences = Differences(
        missing=tuple(
            MissingWeight(name, shape, _similar_names(name, shape, left) or same.get(name, ()))
            for name, shape in absent.items()
        ),
        unexpected=tuple(UnexpectedWeight(name, shape) for name, shape in left.items()),
        reshaped=tuple(reshaped),
    )
    return WeightNameComparison(pairs, differences)


def _match_without_wrapper_prefixes(expected: list[str], found: list[str]) -> dict[str, str]:
    """Pair the names that are equal without wrappers, where that leaves no doubt."""
    bare: dict[str, list[str]] = {}
    wanted: dict[str, list[str]] = {}
    for cores, names in ((bare, found), (wanted, expected)):
        for name in names:
            cores.setdefault(strip_wrapper_prefixes(name), []).append(name)
    return {
        names[0]: bare[core][0]
        for core, names in wanted.items()
        if len(names) == 1 and len(bare.get(core, ())) == 1
    }


def strip_wrapper_prefixes(name: str) -> str:
    """Return a name without what wrappers put into it."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def _similar_names(name: str, shape: Shape, left: Mapping[str, Shape]) -> tuple[str, ...]:
    """Return the names left over that resemble one; those of its shape first."""
    close = difflib.get_close_matches(name, left, n=6, cutoff=0.6)
    # `sorted` is stable: among names of one shape the closest stays first
    return tuple(sorted(close, key=lambda other: left[other] != shape)[:2])


def _candidates_of_same_shape(
    absent: Mapping[str, Shape], left: Mapping[str, Shape]
) -> dict[str, tuple[str, ...]]:
    """Return for each name that is absent what is left of its shape: in their order, where there are as many of both."""
    found: dict[str, tuple[str, ...]] = {}
    for shape in {*absent.values()} - {()}:
        wanted = [name for name, each in absent.items() if each == shape]
        there = [name for name, each in left.items() if each == shape]
        if len(wanted) == len(there):
            found |= {name: (other,) for name, other in zip(wanted, there, strict=True)}
        else:
            found |= dict.fromkeys(wanted, tuple(there[:2]))
    return found


def weight_renaming_code(differences: Differences, found: Iterable[str], source: str) -> str:
    """Return the lines that give weights the names that are missing; "" where it is not plain which is which."""
    left = {each.name: each.shape for each in differences.unexpected}
    missing = differences.missing
    pairs = {each.near[0]: each.name for each in missing if each.near and left[each.near[0]] == each.shape}
    if not pairs or len(pairs) < len(missing):
        return ""
    names, named = "", _prefix_renaming_code(pairs, found)
    if not named:
        shown = ", ".join(f"{other!r}: {name!r}" for other, name in [*pairs.items()][:_MOST_PAIRS])
        more = ", ..." if len(pairs) > _MOST_PAIRS else ""
        names, named = f"    names = {{{shown}{more}}}\n", "names.get(name, name)"
    return (
        "If they are the same weights under other names, give them those of the module:\n"
        f"    weights = {source}\n{names}"
        f"    ts.load_weights(module, {{{named}: each for name, each in weights.items()}})\n"
    )


_MOST_PAIRS = 4


def _prefix_renaming_code(pairs: Mapping[str, str], found: Iterable[str]) -> str:
    """Return how all names are made by another beginning, in code; "" where that would change other names than are to be."""
    old, new = _differing_prefixes(pairs)
    if not old:
        made, written = {name: new + name for name in found}, f"{new!r} + name"
    elif not new:
        made = {name: name.removeprefix(old) for name in found}
        written = f"name.removeprefix({old!r})"
    else:
        made = {name: name.replace(old, new, 1) for name in found}
        written = f"name.replace({old!r}, {new!r}, 1)"
    is_right = all(renamed == pairs.get(name, name) for name, renamed in made.items())
    return written if is_right and (old or new) else ""


def _differing_prefixes(pairs: Mapping[str, str]) -> tuple[str, str]:
    """Return by which beginnings the two names of all pairs differ; two empty ones where they differ in more."""
    found: set[tuple[str, str]] = set()
    for other, name in pairs.items():
        one, two = other.split("."), name.split(".")
        while one and two and one[-1] == two[-1]:
            one, two = one[:-1], two[:-1]
        found.add(("".join(f"{part}." for part in one), "".join(f"{part}." for part in two)))
    return next(iter(found)) if len(found) == 1 else ("", "")
