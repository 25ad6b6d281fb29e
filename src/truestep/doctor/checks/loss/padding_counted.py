# SPDX-License-Identifier: Apache-2.0
"""Padded targets that count."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from truestep.doctor.check import RISK, At, SourceCheck
from truestep.doctor.source.cached_questions import own_identifiers
from truestep.doctor.source.collating import batch_origins
from truestep.doctor.source.losses import loss_calls, loss_layer_constructor, loss_reduction
from truestep.doctor.source.module import SourceModule
from truestep.doctor.source.names import dotted_name, names_in
from truestep.doctor.source.value_origins import argument, is_call_of, literal
from truestep.doctor.watcher_base import Observation, Observations, Watcher

if TYPE_CHECKING:
    from truestep.doctor.finding import Place
    from truestep.doctor.runtime.history import ForwardCall, LossCall, OptimizerRecord, WatchHistory
    from truestep.doctor.runtime.padded_targets import AskedTargets, GivenSequences

_TARGETS = re.compile(r"(^|_)(labels?|targets?|tags?|ys?|trg|tgt)(_|$)", re.IGNORECASE)
_PAD = "torch.nn.utils.rnn.pad_sequence"
_TEXT = "Padded targets count in the loss: nothing says to ignore them."
IGNORED = -100  # what cross entropy leaves out unless told otherwise
_STEPS = 3  # that are looked at
_MOST = 8  # losses and applications of one step that are kept


class PaddingCounted(SourceCheck, Watcher):
    """Targets are padded with a class number, and the loss counts them, although a mask or padding_idx tells padding apart.

    Why: every padded place counts as an example of that class: the loss looks small, and the model
    learns to pad.

    Bad:
        from torch.nn.utils.rnn import pad_sequence

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Embedding(9, 8), nn.Linear(8, 9)

            def forward(self, ids, attention_mask):
                return self.head(self.embed(ids) * attention_mask[..., None])

        ids = pad_sequence([torch.randint(1, 9, (length,)) for length in (12, 5, 9, 7)], batch_first=True)
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scores = model(ids, attention_mask=(ids != 0).long())
        loss = F.cross_entropy(scores[:, :-1].transpose(1, 2), ids[:, 1:])  # here
        loss.backward()
        optimizer.step()

    Good:
        from torch.nn.utils.rnn import pad_sequence

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Embedding(9, 8), nn.Linear(8, 9)

            def forward(self, ids, attention_mask):
                return self.head(self.embed(ids) * attention_mask[..., None])

        ids = pad_sequence([torch.randint(1, 9, (length,)) for length in (12, 5, 9, 7)], batch_first=True)
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scores = model(ids, attention_mask=(ids != 0).long())
        loss = F.cross_entropy(scores[:, :-1].transpose(1, 2), ids[:, 1:], ignore_index=0)
        loss.backward()
        optimizer.step()

    Fix: pad the labels with -100 (a copy of the ids: labels[attention_mask == 0] = -100), or give the loss ignore_index=PADDING.

    Evidence: the plain form of row 50 of docs/mistakes.md; beds P, U: 2 true, 0 false.
    """

    code = "LOSS026"
    words = ("pad_sequence",)

    def read(self, module: SourceModule) -> Iterator[At]:
        """Report padding of targets by another value than -100 where the loss leaves none out.

        A mask of something else, such as attention's, says nothing about the loss.
        """
        told: set[ast.AST] = set()
        for loss in loss_calls(module, "cross_entropy", "nll_loss"):
            target = argument(loss, 1, "target")
            if target is None or _ignores_padding(module, loss):
                continue
            origins = batch_origins(module, target)
            made = origins.made if origins.is_whole else _paddings_named_as_targets(module, target)
            for call in made:
                if (
                    is_call_of(module, call, _PAD)
                    and _is_padding_not_ignored(module, call)
                    and call not in told
                ):
                    told.add(call)
                    yield At(self._reported_node(module, call, loss), _TEXT, RISK)

    def _reported_node(self, module: SourceModule, padding: ast.expr, loss: ast.Call) -> ast.AST:
        """Return the padding of targets; the loss where the inputs are padded so too, as of a language model."""
        here = module.home(padding) is module
        return (
            padding
            if here and any(_TARGETS.search(each) for each in _assigned_names(module, padding))
            else loss
        )

    def __init__(self) -> None:
        self._left = _STEPS
        self._asked: list[AskedTargets] = []
        self._given: list[GivenSequences] = []

    def on_loss(self, history: WatchHistory, loss: LossCall) -> None:
        """Keep the targets that a cross entropy makes one number of."""
        if self._left and len(self._asked) < _MOST:
            from truestep.doctor.runtime.padded_targets import asked_targets

            asked = asked_targets(loss)
            self._asked += [asked] if asked is not None else []

    def on_forward(self, history: WatchHistory, forward: ForwardCall) -> None:
        """Keep the symbols and masks that a model was given."""
        if self._left and len(self._given) < _MOST:
            from truestep.doctor.runtime.padded_targets import given_sequences

            self._given += given_sequences(forward)

    def on_step(self, history: WatchHistory, record: OptimizerRecord, place: Place) -> Observations:
        """Report targets of one value at all places that a mask leaves out, if the loss counts them."""
        asked, given, self._asked, self._given = self._asked, self._given, [], []
        if not self._left or not history.is_in_first_steps:
            return
        self._left -= 1
        from truestep.doctor.runtime.padded_targets import padded_targets

        for each in asked:
            found = next(filter(None, (padded_targets(one, each) for one in given)), None)
            if found is not None:
                self._left = 0
                text = (
                    f"{found.num_padded} of {found.num_targets} targets are {found.value}, where {found.mask} says padding, "
                    "and count in the loss."
                )
                evidence = {"targets": found.num_targets, "padding": found.num_padded, "value": found.value}
                yield Observation(each.place, text, RISK, evidence)
                return


def _ignores_padding(module: SourceModule, loss: ast.Call) -> bool:
    """Tell a loss that is told what to ignore, weighs the classes, or is masked behind its call."""
    made = loss_layer_constructor(module, loss) or loss
    words = {word.arg for word in made.keywords}
    return bool(words & {"ignore_index", "weight", None}) or loss_reduction(module, loss) == "none"


def _is_padding_not_ignored(module: SourceModule, padding: ast.expr) -> bool:
    """Tell padding by another value than the one that is ignored."""
    assert isinstance(padding, ast.Call)
    value = argument(padding, 2, "padding_value")
    ignored = literal(module, value) == IGNORED or (
        value is not None and "ignore" in ast.unparse(value).lower()
    )
    return not ignored


def _assigned_names(module: SourceModule, padding: ast.expr) -> list[str]:
    return [dotted_name(each) or "" for each in getattr(module.statement(padding), "targets", [])]


def _paddings_named_as_targets(module: SourceModule, target: ast.expr) -> list[ast.expr]:
    """Return what is padded under the name of targets, for a loss's target that has come a way out of sight."""
    identifiers = own_identifiers(module)
    words = {word.arg for word in module.all(ast.keyword)}
    if not any(_TARGETS.search(word) for word in names_in(target)) or "ignore_index" in words:
        return []
    if "pack_padded_sequence" in identifiers or _has_mask_selection(module):
        return []
    calls: list[ast.expr] = [*module.calls(_PAD)]
    named = [each for each in calls if any(_TARGETS.search(name) for name in _assigned_names(module, each))]
    return [each for each in named if _is_reached(module, each)]


def _is_reached(module: SourceModule, call: ast.expr) -> bool:
    """Tell whether anything names the function that a call stands in: a collate function may be given to no loader."""
    function = module.enclosing(call, ast.FunctionDef)
    return (
        function is None
        or any(file.reads(function.name) for file in module.program.linked)
        or bool(module.enclosing(function, ast.ClassDef))
    )


def _has_mask_selection(module: SourceModule) -> bool:
    """Tell whether a mask picks or fills targets anywhere in the file."""
    indices = [each.slice for each in module.all(ast.Subscript) if not isinstance(each.slice, ast.Constant)]
    filled = {"masked_fill", "masked_fill_", "masked_select", "where"} & own_identifiers(module)
    return bool(filled) or any("mask" in ast.unparse(each) for each in indices)
