# SPDX-License-Identifier: Apache-2.0
"""Names of axes: how they are written, found and matched."""

from collections.abc import Iterable, Mapping, Sequence

Names = tuple[str, ...]


def read_names(names: str | Iterable[str]) -> Names:
    """Return the names in "N C H W" or ("N", "C", "H", "W"); each a Python identifier, none twice."""
    found = tuple(names.split()) if isinstance(names, str) else as_names(names)
    for name in found:
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(
                f"{name!r} is no name for an axis. Names are Python identifiers, written as one text with spaces: 'N C H W'."
            )
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice:
        raise ValueError(
            f"The names {' '.join(found)} have {', '.join(twice)} more than once, so it would not say which axis is meant. "
            "Give each axis its own name."
        )
    return found


def as_names(names: Iterable[str]) -> Names:
    """Return names that are given one by one, in their order."""
    if isinstance(names, set | frozenset) or not isinstance(names, Iterable):
        why = "a set has no order" if isinstance(names, set | frozenset) else f"got {names!r}"
        raise ValueError(
            f"Names are given in the order of the axes, as one text with spaces, 'N C H W': {why}."
        )
    return tuple(names)


def shown(sizes: Mapping[str, int]) -> str:
    """Return names and sizes as messages show them: (N=8, C=3)."""
    return "(" + ", ".join(f"{name}={size}" for name, size in sizes.items()) + ")"


def find(names: str | Iterable[str], sizes: Mapping[str, int]) -> list[int]:
    """Return the positions of `names` among those of `sizes`."""
    order = list(sizes)
    wanted = read_names(names)
    missing = [name for name in wanted if name not in sizes]
    if missing:
        raise ValueError(f"There is no axis {', '.join(missing)} in {shown(sizes)}.")
    return [order.index(name) for name in wanted]


def check_match(every: Sequence[Mapping[str, int]]) -> None:
    """Raise a ValueError where two operands have a name in common and not its size; sizes of 1 count as any other."""
    for right in range(1, len(every)):
        for left in range(right):
            differing = [name for name, size in every[right].items() if every[left].get(name, size) != size]
            if differing:
                raise ValueError(
                    f"{shown(every[left])} and {shown(every[right])} do not match: "
                    + " and ".join(
                        f"{name} is {every[left][name]} and {every[right][name]}" for name in differing
                    )
                    + ". Axes of one name have one size. Rename one of them if it is another axis; select(name, 0) drops an axis "
                    "of size 1."
                )


def together(every: Sequence[Mapping[str, int]]) -> Names:
    """Return all names: those of the operand with most axes, then what the others add, in their order."""
    longest = max(every, key=len)
    return tuple(dict.fromkeys([*longest, *(name for one in every for name in one)]))
