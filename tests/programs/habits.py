# SPDX-License-Identifier: Apache-2.0
"""The habits: small text files, one habit each, in folders by list; and how those of one draw become source text.

A file holds one sentence, lines of `word: value`, and sections that open with `== name ==`. A section is a piece of a
program. `{{name}}` on a line of its own stands for all pieces of that name, one below the other; within a line for the
text of all, one behind the other. `== name truestep ==` takes the place of `== name ==` of the same file in programs whose
framework is truestep.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

HERE = Path(__file__).parent
LISTS = ("framework", "loop", "data", "model", "loss", "optimization")
MAX_LINES = 40

BLOCK = re.compile(r"^( *)\{\{([\w ]+)\}\}$", re.M)
INLINE = re.compile(r"\{\{([\w ]+)\}\}")

SLOTS = (
    *("framework", "shape", "evaluation", "logging", "keeping"),
    *("source", "batching", "augmentation"),
    *("net", "around"),
    *("terms", "form"),
    *("optimizer", "groups", "schedule", "clip", "update", "precision", "average", "learners"),
)

# What every program has where no habit says otherwise.
FRAME = {
    "imports": "import copy\nimport functools\nimport itertools\nimport os\nimport random\nimport numpy as np\n"
    "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
    "from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset",
    "top": "{{imports}}\n\n{{definitions}}",
    "whole": "{{build}}\n{{train}}\n{{finish}}",
    "each batch": "batch",
    "iterated": "loader",
    "batches": "run.batches(loader)",
    "epochs": "range(2)",
    "learners": "model",
    "saves": "{{law saves}}",
    "run with truestep": '{{setup}}\nrun = ts.Run("run", seed=1, progress=False{{config}}{{own watch}}'
    "{{saves}}{{run options}}{{law options}})\ntorch.manual_seed(1)\n{{data}}",
    "loop with truestep": "for epoch in run.epochs(2):\n    {{epoch noted}}\n    {{epoch start}}\n"
    "    for {{each batch}} in {{batches}}:\n        {{batch noted}}\n        {{update}}\n"
    "        {{loss noted}}\n        {{after update}}\n        {{law stops}}\n"
    "    {{epoch end}}",
    "learner with truestep": "{{model}}\n{{around}}\n"
    'model = run.learner(model, lambda p: {{optimizer}}{{learner options}}{{split}}, name="model")\n'
    "{{more to train}}\n{{loss}}\n{{law watches}}\n{{before training}}",
    "end with truestep": "{{at the end}}\n{{end noted}}\n{{end saved}}",
    "end saved": "if run.is_main:\n"
    '    torch.save({"model": model.state_dict(), "optimizer": model.optimizers[0].state_dict()}, "end.pt")',
    "held rows": "6",
    "stream rows": "20",
    "held batch": "4",
    "held apart": "drawn = torch.Generator().manual_seed(5)\n"
    "held_rows = torch.randn({{held rows}}, 8, generator=drawn), torch.randint(3, ({{held rows}},), generator=drawn)\n"
    "held = run.data(held_rows, batch_size={{held batch}})",
    "dataset": "data",
    "shuffle": ", shuffle=True{{collated}}",
    "collate": "collate_fn",
    "collate truestep": "collate",
    "run data": "run.data({{dataset}}, batch_size=6{{shuffle}}{{workers}})",
    "of rows": "def __init__(self):\n    {{rows made}}\n    {{augmentation held}}\n\ndef __len__(self):\n    return 20",
    "rows made": "self.rows = torch.randn(20, 8)",
    "unpack": "x, y = batch",
    "call": "model(x)",
    "result": "values.mean()",
    "result truestep": "values",
    "layers": "def __init__(self):\n    super().__init__()",
    "loss body": "{{loss entry}}\n{{unpack}}\n{{before call}}\nout = {{call}}\n{{terms}}\nreturn {{result}}",
}


@dataclass(frozen=True, eq=False)  # read once: each is equal to itself alone
class Habit:
    """One habit of people, and its pieces of source text."""

    list: str
    name: str
    about: str
    words: dict[str, str]
    pieces: dict[str, str]

    @cached_property
    def slot(self) -> str:
        """Return what it is one choice of: habits of one slot exclude each other."""
        return self.words["slot"]

    def has(self, word: str, value: str) -> bool:
        """Return whether a line `word: ...` names the value."""
        return value in self.words.get(word, "").split()

    def piece(self, name: str, frameworks: Sequence[str]) -> str | None:
        """Return its piece of a name, in programs of a framework, or of one that it is like."""
        names = [f"{name} {framework}" for framework in frameworks]
        return next((self.pieces[each] for each in (*names, name) if each in self.pieces), None)

    def suits(self, other: "Habit") -> bool:
        """Return whether a program can have both: neither excludes the other, and what each needs the other gives."""
        return not any(a.excludes(b) for a, b in ((self, other), (other, self)))

    def stands_apart(self, other: "Habit", laws: Sequence[str]) -> bool:
        """Return whether this one can't be held beside another to one of the laws."""
        apart = {name for law in laws for name in self.words.get(f"without under {law}", "").split()}
        rounds = ["rounds"] if "plain rounds" in other.words else []
        return bool(apart) and bool(apart & {other.name, *other.words.get("is", "").split(), *rounds})

    def excludes(self, other: "Habit") -> bool:
        """Return whether this one can't be written together with another."""
        names = {other.name, *other.words.get("is", "").split(), *other.words.get("like", "").split()}
        if self.has("only plainest", other.slot) and "plainest" not in other.words:
            return True
        needed = self.words.get(f"needs {other.slot}", "").split()
        return bool(names & set(self.words.get("without", "").split())) or bool(
            needed and not names & set(needed)
        )


def read_habit(path: Path) -> Habit:
    """Return the habit that a file holds."""
    head, *rest = re.split(r"^== (.+) ==\n", path.read_text("utf-8"), flags=re.M)
    about, *words = head.strip().splitlines()
    pairs = dict(re.split(r":\s*", line, maxsplit=1) for line in words)
    pieces = {name: text.strip("\n") for name, text in zip(rest[::2], rest[1::2], strict=True)}
    return Habit(path.parent.name, path.stem, about, pairs, pieces)


@cache
def all_habits() -> tuple[Habit, ...]:
    """Return every habit: list by list, in each slot the plainest first, to which a failing program shrinks."""
    found = [read_habit(path) for each in LISTS for path in sorted((HERE / each).glob("*.txt"))]
    return tuple(sorted(found, key=lambda habit: "plainest" not in habit.words))


@cache
def slots() -> dict[str, tuple[Habit, ...]]:
    """Return the habits of each slot, in the order in which they are drawn."""
    return {name: tuple(habit for habit in all_habits() if habit.slot == name) for name in SLOTS}


@cache
def named(name: str) -> Habit:
    """Return the habit of a name."""
    (found,) = [habit for habit in all_habits() if habit.name == name]
    return found


def of_the_frame(name: str, frameworks: Sequence[str]) -> str:
    """Return what a program of a framework, or of one that it is like, has for a piece that no habit gives."""
    own = (FRAME.get(f"{name} {framework}") for framework in frameworks)
    return next((text for text in own if text is not None), FRAME[name])


def text_of(habits, name: str, given: dict[str, str] | None = None) -> str:
    """Return the text of a piece, with the pieces that it names; those given take the place of the habits'."""
    framework = next(habit for habit in habits if habit.slot == "framework")
    frameworks = [framework.name, *framework.words.get("like", "").split()]
    given = given or {}

    def pieces(name):
        if name in given:
            return [fill(given[name])]
        found = [text for habit in habits if (text := habit.piece(name, frameworks)) is not None]
        if name in FRAME and (name == "imports" or not found):
            found.insert(0, of_the_frame(name, frameworks))
        return [fill(text) for text in found if text]

    def block(match):
        lines = "\n".join(pieces(match[2])).splitlines()
        return "\n".join(match[1] + line if line else "" for line in lines) or "\0"

    def fill(text):
        filled = BLOCK.sub(block, text)
        filled = "\n".join(line for line in filled.split("\n") if "\0" not in line)
        return INLINE.sub(lambda match: "".join(pieces(match[1])), filled)

    return "\n".join(pieces(name))
