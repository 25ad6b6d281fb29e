# SPDX-License-Identifier: Apache-2.0
"""The loops over batches that libraries run in the user's place, and the accumulation of which they keep count."""

from collections.abc import Mapping
from typing import NamedTuple

# How far such a loop is, by the ends of the names that tell it:
#   is last: whether this batch is the last one · length: how many there are · batches: how many came, this one among them ·
#   updates: how often the optimizer stepped
_LIGHTNING = {
    "trainer.is_last_batch": "is last",
    "trainer.num_training_batches": "length",
    "trainer.global_step": "updates",
    "self.global_step": "updates",
}
_IGNITE = {"state.iteration": "batches", "state.epoch_length": "length"}


class LibraryLoop(NamedTuple):
    """Methods of a class of the user's that a library calls, and which argument is the number of the batch, from 0."""

    before: tuple[str, ...]
    batch: Mapping[str, int]
    trains: str  # the one of them by which it trains
    after: tuple[str, ...]
    progress: Mapping[str, str]


class LibraryEngine(NamedTuple):
    """A class that is given the function that it calls for each batch, and handlers of what happens around that."""

    trains: tuple[int, str]
    gives_event: tuple[str, str]  # as the first argument of a method, before the handler, or of a decorator
    before: str
    batch_before: str
    batch_after: str
    after: str
    progress: Mapping[str, str]


class LibraryAccumulator(NamedTuple):
    """A class whose objects close a window every so many batches; what they prepared does nothing in between."""

    option: str
    plugin: tuple[str, str]  # an object that it may be given instead, and the option of that
    enters: str  # the method whose `with` block is one batch
    asks: str  # the attribute that tells whether this batch closes the window
    named: str  # what it is called where nothing tells what made it


LOOPS = {  # by the kind of the class
    "lightning module": LibraryLoop(
        before=("on_train_epoch_start",),
        batch={"on_train_batch_start": 1, "training_step": 1, "on_train_batch_end": 2},
        trains="training_step",
        after=("on_train_epoch_end",),
        progress=_LIGHTNING,
    )
}
ENGINES = {
    "ignite.engine.Engine": LibraryEngine(
        (0, "process_function"),
        ("add_event_handler", "on"),
        "EPOCH_STARTED",
        "ITERATION_STARTED",
        "ITERATION_COMPLETED",
        "EPOCH_COMPLETED",
        _IGNITE,
    )
}
ACCUMULATORS = {
    "accelerate.Accelerator": LibraryAccumulator(
        "gradient_accumulation_steps",
        ("gradient_accumulation_plugin", "num_steps"),
        "accumulate",
        "sync_gradients",
        "accelerator",
    )
}
# What takes a loss backward by `x.backward(loss)`; an accumulator divides it by the length of its windows.
TAKES_BACKWARD = (
    *ACCUMULATORS,
    *(
        f"{home}.Fabric"
        for home in ("lightning", "lightning.fabric", "lightning_fabric", "lightning.pytorch")
    ),
)
NAMED_AS_THESE = ("accelerator", "fabric", "engine")
# What changes from batch to batch: no test of it has one value throughout.
CHANGES = frozenset(
    name
    for each in (_LIGHTNING, _IGNITE, *({row.asks: ""} for row in ACCUMULATORS.values()))
    for name in each
    if each.get(name) not in ("length", "updates")
)
