# SPDX-License-Identifier: Apache-2.0
"""Which rows a model was trained on, and which it was evaluated on, in what the watch looked at.

A row is known by its print alone. What was trained on went into a loss that went backward; what was evaluated went
into a model with no way from its output to such a loss.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sized
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader

from truestep.doctor.library.operations import operations
from truestep.doctor.runtime.history import WINDOW
from truestep.doctor.runtime.row_hashes import (
    combine_fingerprints,
    row_fingerprints,
    sampled_rows,
    share_of_fractional_numbers,
)
from truestep.doctor.runtime.row_records import RowBatch, RowPass
from truestep.doctor.runtime.tensor_queries import (
    is_plain_watched_tensor,
    watched_sensitive_layers,
    watched_tensors,
)

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from truestep.doctor.finding import Place
    from truestep.doctor.runtime.history import ForwardCall
    from truestep.doctor.runtime.value_origins import WatchedOrigin, WatchedOrigins

FEW = 4  # numbers: with fewer an example is told by all of its tensors together
MOST_PASSES = 12  # of one line: the first ones and the last ones
MOST_PENDING = 20_000  # batches
_DRAWN = operations(numbers="drawn")
_LEAVES = frozenset({"numpy", "tolist"})
_PICKS = operations(numbers="picked") | {"__getitem__"}


class WatchedRows:
    """The rows of one run; only the recorder calls what changes it."""

    def __init__(self, origins: WatchedOrigins) -> None:
        self.trained = RowPass()
        self.evaluated: dict[tuple[int, Place], list[RowPass]] = {}
        self._origins = origins
        self._num_applied = 0
        self._pending: list[RowBatch] = []  # not yet known to be trained on or evaluated
        self._ways: dict[WatchedOrigin, list[RowBatch]] = {}  # what the values of this step were made of
        self._models: dict[int, tuple[weakref.ref[nn.Module], int]] = {}
        self._eras: dict[int, int] = {}
        self._put_back: set[int] = set()  # models whose weights were loaded after training
        self._data: int | None = None  # the rows of the loader that gave the last batch
        self._loaded = 0  # the rows of its last batch
        self._is_new_pass = False  # whether a loader has begun anew since the last step

    def trained_before(self, batch: RowBatch, *, of_any_model: bool = False) -> list[RowBatch]:
        """Return what a batch's model, or any, was trained on before that batch came, since its training began."""
        return [
            each
            for each in self.trained.batches
            if each.at < batch.at and (of_any_model or (each.model, each.era) == (batch.model, batch.era))
        ]

    def trained_by_model(self) -> list[list[RowBatch]]:
        """Return the batches of all training, those of each model and forward by themselves."""
        found: dict[tuple[int, Place], list[RowBatch]] = {}
        for each in self.trained.batches:
            found.setdefault((each.model, each.place), []).append(each)
        return list(found.values())

    # ── what happens ──────────────────────────────────────────────────────────────────────────

    def begin_pass(self, source: Any) -> None:
        """A loader begins anew."""
        if isinstance(source, DataLoader):
            self._loaded = 0
            self._is_new_pass = True

    def load_batch(self, loading: Any, batch: Any) -> None:
        """A pass over a loader gives a batch; another loader's may have come in between."""
        by = getattr(loading, "_index_sampler", None)
        rows = by.sampler if type(by) is BatchSampler else None  # else its rows are not to be counted
        self._data = len(rows) if isinstance(rows, Sized) else None
        first = next((each for each in watched_tensors(batch) if each.dim()), None)
        self._loaded = len(first) if first is not None else 0

    def begin_training(self, optimizer: Optimizer) -> None:
        """An optimizer is made: what its models were trained on before may be forgotten by them."""
        held = {id(each) for group in optimizer.param_groups for each in group["params"]}
        for reference, number in self._models.values():
            model = reference()
            if model is not None and any(id(each) in held for each in model.parameters()):
                self._eras[number] += 1

    def load(self, model: nn.Module) -> None:
        """Weights are put into a model: if it is trained after that, it begins anew."""
        self._put_back.add(self._model_number(model))

    def apply(self, forward: ForwardCall, step: int) -> RowBatch | None:
        """A model was applied; of training the first steps are enough, and those that begin a pass."""
        if step >= WINDOW and forward.gradients_on and not self._is_new_pass:
            return None
        tensors = [*watched_tensors(forward.args), *watched_tensors(forward.kwargs)]
        if not tensors or not _is_row_tensor(tensors[0]) or len(self._pending) > MOST_PENDING:
            return None
        if next(forward.module.parameters(), None) is None:
            return None
        if self._is_model_output(tensors[0]):
            for before in self._batches_behind(tensors[0]):
                before.is_passed_on = True
            return None
        outputs = list(watched_tensors(forward.output))
        batch = self._make_row_batch(forward, tensors, outputs, step)
        self._pending.append(batch)
        for each in outputs:
            if (origin := self._origins.of(each)) is not None:
                batch.followed = True
                self._ways.setdefault(origin, []).append(batch)
        batch.outputs = [weakref.ref(each) for each in outputs]
        return batch

    def _make_row_batch(
        self, forward: ForwardCall, tensors: list[Tensor], outputs: list[Tensor], step: int
    ) -> RowBatch:
        rows = sampled_rows(tensors[0])
        number = self._model_number(forward.module)
        self._num_applied += 1
        return RowBatch(
            model=number,
            era=self._eras[number],
            place=forward.place,
            at=self._num_applied,
            step=step,
            inputs=_prints_of_examples(tensors, rows),
            width=tensors[0][0].numel(),
            fractions=share_of_fractional_numbers(rows),
            recorded=forward.gradients_on and any(each.requires_grad for each in outputs),
            alone=len(tensors) == len(forward.args) + len(forward.kwargs) == 1,
            exact=not (forward.module.training and watched_sensitive_layers(forward.module, training=True)),
            data=self._data if self._loaded == len(rows) else None,
            is_measured=any(not each.dim() for each in outputs),
        )

    def follow(self, origin: WatchedOrigin, given: list[Tensor]) -> None:
        """An operation was computed: what it gave comes from the models that its arguments come from."""
        if not self._ways:
            return
        found: list[RowBatch] = []
        others = []
        for each in given:
            made = self._origins.of(each)
            way = self._ways.get(made) if made is not None else None
            if way is not None:
                found += [batch for batch in way if batch not in found]
            elif not isinstance(each, nn.Parameter):
                others.append(each)
        if not found:
            return
        self._ways[origin] = found
        for batch in found:
            batch.is_used = True
            # of fewer numbers than rows some rows are chosen, as where the least sure ones are to be labelled
            is_whole = any(each.numel() >= len(batch.inputs) for each in given)
            batch.is_taken_out = batch.is_taken_out or (origin.operation in _LEAVES and is_whole)
            if others and batch.targets is None:
                self._note_targets(batch, others[0])
                batch.of_several = any(not torch.equal(batch.inputs, each.inputs) for each in found)

    def learn(self, tensors: Iterable[Tensor] | None) -> None:
        """A backward begins at these tensors; None where they are not known."""
        reached: set[RowBatch] = set()
        known = tensors is not None
        for each in tensors or ():
            origin = self._origins.of(each)
            known = known and origin is not None and origin in self._ways
            reached.update(self._ways.get(origin, ()) if origin is not None else ())
        left = []
        for batch in self._pending:
            if known and batch.followed and batch not in reached:
                left.append(batch)
            elif batch.recorded:
                self._record_training(batch)
        self._pending = left

    def end_step(self) -> None:
        """An optimizer has stepped: what nothing went backward through without a graph was an evaluation."""
        self._ways.clear()
        self._is_new_pass = False
        over = [each for each in self._pending if not each.recorded]
        self._pending = [each for each in self._pending if each.recorded]
        for each in self._pending:
            each.followed = False
        self._record_evaluation(over)

    def end_evaluation(self) -> None:
        """A pass, a mode or the run ends: what was applied until now was evaluated."""
        over, self._pending = self._pending, []
        self._ways.clear()
        self._record_evaluation(over)

    def drop(self) -> None:
        """Nothing is known of what was applied last."""
        self._pending.clear()
        self._ways.clear()

    def is_held_out_again(self, batch: RowBatch | None) -> bool:
        """Tell whether rows that no model was trained on were evaluated at this line before."""
        if batch is None or not batch.prints:
            return False
        before = [each for each in self.evaluated.get((batch.model, batch.place), ()) if each.num_rows]
        earlier = (one for each in before for one in each.batches if one.step < batch.step)
        return any(batch.prints <= one.prints for one in earlier) and all(
            batch.prints.isdisjoint(each.prints) for each in self.trained.batches
        )

    def passes_on_in_training(self, batch: RowBatch) -> bool:
        """Tell whether what this batch's model gave in training went into another model."""
        return any(each.is_passed_on for each in self.trained.batches if each.model == batch.model)

    # ── how ───────────────────────────────────────────────────────────────────────────────────

    def _batches_behind(self, value: Tensor) -> list[RowBatch]:
        """Return the batches that a value was made of."""
        origin = self._origins.of(value)
        return self._ways.get(origin, []) if origin is not None else []

    def _is_model_output(self, value: Tensor) -> bool:
        """Tell a model's output, which is given to the next one."""
        origin = self._origins.of(value)
        layers = (each.layer for each in origin.ancestors()) if origin is not None else ()
        return any(each is not None and next(each.parameters(), None) is not None for each in layers)

    def _model_number(self, model: nn.Module) -> int:
        known = self._models.get(id(model))
        if known is None or known[0]() is not model:
            known = self._models[id(model)] = weakref.ref(model), len(self._eras)
            self._eras[known[1]] = 0
        return known[1]

    def _note_targets(self, batch: RowBatch, other: Tensor) -> None:
        """A value that no model made meets the output: the targets, if it has a row for each."""
        count = len(batch.inputs)
        if not _is_row_tensor(other) or other.numel() % count or self._origins.is_learned(other):
            return
        if len(other) != count and not (other.dim() == 1 and other.numel() == count * batch.width):
            return
        if _is_random_noise(self._origins.of(other)):
            return
        rows = sampled_rows(other.reshape(count, -1)).float()  # 1, 1.0 and True are one target
        batch.targets, batch.target_width = row_fingerprints(rows), other.numel() // count
        batch.of_classes = not other.is_floating_point()
        batch.is_measured = True

    def _record_training(self, batch: RowBatch) -> None:
        if batch.model in self._put_back:
            self._put_back.discard(batch.model)
            if any(each.model == batch.model for each in self.trained.batches):
                self._eras[batch.model] += 1
                batch.era = self._eras[batch.model]
        self.trained.add(batch)

    def _record_evaluation(self, batches: list[RowBatch]) -> None:
        passes: dict[tuple[int, Place], RowPass] = {}
        for each in batches:
            passes.setdefault((each.model, each.place), RowPass()).add(each)
        for key, made in passes.items():
            known = self.evaluated.setdefault(key, [])
            known.append(made)
            if len(known) > MOST_PASSES:
                del known[MOST_PASSES // 2]


def _prints_of_examples(tensors: list[Tensor], rows: Tensor) -> Tensor:
    """Return a print for each example: of its first tensor, or of all that have a row for it where that holds little."""
    found = row_fingerprints(rows)
    if rows.shape[1] < FEW:
        for each in tensors[1:]:
            if _is_row_tensor(each) and len(each) == len(rows):
                found = combine_fingerprints(found, row_fingerprints(sampled_rows(each)))
    return found


def _is_row_tensor(value: Tensor) -> bool:
    """Tell an ordinary tensor of rows, on a device where sums of whole numbers are the same everywhere."""
    ordinary = is_plain_watched_tensor(value) and type(value).__torch_dispatch__ is Tensor.__torch_dispatch__
    return ordinary and value.dim() > 0 and value.numel() > 0 and value.device.type in ("cpu", "cuda")


def _is_random_noise(origin: WatchedOrigin | None) -> bool:
    """Tell fresh noise and what is computed from it; rows that are picked at random are none."""
    waiting = [origin] if origin is not None else []
    while waiting:
        current = waiting.pop()
        if current.operation in _DRAWN:
            return True
        waiting += current.before if current.operation not in _PICKS else ()
    return False
