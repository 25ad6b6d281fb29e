# SPDX-License-Identifier: Apache-2.0
"""What a child of an experiment changes, and the batch that comes of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from truestep.doctor.relations.examples import Examples
from truestep.doctor.relations.trials.tokens import with_longer_padding, with_other_padding

OfRows = Literal[
    "permuted", "first half twice", "second half twice", "twice", "one", "one collated", "one changed"
]
OfItems = Literal["constant", "filled", "exchanged", "other padding", "longer padding"]
ChangeKind = Literal["none"] | OfRows | OfItems


@dataclass(frozen=True)
class Change:
    """One child of an experiment: what is changed in it, and what it looks at besides."""

    kind: ChangeKind = "none"
    item: str = ""  # of the batch, where one alone is changed
    items: tuple[str, ...] = ()  # where several are
    repeated: bool = False  # the same once more
    keeps_buffers: bool = False  # whether buffers stay as they are, whatever writes to them
    records_rows: bool = False  # whether the rows of each operation's result are summed up
    # of those, the number of one that is rolled by one, and along which dimension
    rolled: tuple[int, int] = (-1, 0)
    cleared: bool = False  # whether gradients are cleared beforehand
    second_call: bool = False  # whether a closure's second call in a step is looked at, and cleared before
    moved: str = ""  # the block of parameters that is moved
    by: float = 0.0  # how far
    at: int | None = None  # before which call of torch; None where the batch is handed over
    # whether factors and copies are those of where nothing is moved; without a move, noted
    holds_constants: bool = False
    opens_cuts: bool = False  # whether detach() and no_grad() leave the graph whole
    option: str = ""  # the criterion's that has another value
    value: float = 0.0  # which; or what an item is filled with
    row: int = 0  # the example that is changed, or whose value all get
    noise: int = 0  # of other random numbers, the how-many-th
    # numbers that stand for examples, which double with these; gradients are those of the step
    counts: tuple[int, ...] = ()
    # what of the step's operations is followed: results, operands, outputs, views or buffers
    follows: str = ""
    spoiled: tuple[str, ...] = ()  # names that nothing reads, each with its line, that get other values
    apart: str = ""  # a line whose views have memory of their own before they are written to
    flipped: str = ""  # a condition that gives the opposite answer
    chosen: str = ""  # a condition of which what it chooses gets other values

    def count(self, examples: Examples) -> int:
        """Return how many examples the changed batch holds."""
        return {"twice": 2 * examples.count, "one": 1, "one collated": 1}.get(self.kind, examples.count)

    def set_option(self, criteria: Mapping[str, Any]) -> None:
        """Give a criterion the other value."""
        criterion, _, name = self.option.rpartition(".")
        if name:
            setattr(criteria[criterion], name, self.value)

    def batch(self, examples: Examples) -> Any:
        """Return the batch that is handed over in its place."""
        made: dict[str, Callable[[], Any]] = {
            "permuted": examples.permuted,
            "first half twice": lambda: examples.halves()[0],
            "second half twice": lambda: examples.halves()[1],
            "twice": examples.twice,
            "one": examples.one,
            "constant": lambda: examples.constant(self.item, self.row),
            "filled": lambda: examples.filled(self.item, int(self.value)),
            "exchanged": lambda: examples.with_exchanged_item(self.item),
            "one changed": lambda: examples.with_changed(self.row),
            "other padding": lambda: with_other_padding(examples, self.items),
            "longer padding": lambda: with_longer_padding(examples),
        }
        return made.get(self.kind, examples.fresh)()
