# SPDX-License-Identifier: Apache-2.0
"""`ts.watch_layers`: looks at a model's layers every so many steps, and says which of them do not learn."""

from typing import Any, Self

import torch
from torch import Tensor, nn

from truestep.core.device_specific import AsyncHostCopy, send_to_host
from truestep.core.errors import OptionError
from truestep.core.module_inspection import as_module, is_compiled_layer
from truestep.core.result_display import RenderableType, Result
from truestep.core.text_formatting import number_or_dash, number_text, plural
from truestep.core.uncopied_hooks import HookOfOriginal
from truestep.model.layers import look as looking
from truestep.model.layers.findings import (
    LOOKS,
    LayerFinding,
    LayerLook,
    Look,
    layer_findings_of_looks,
    layer_numbers_for_json,
)
from truestep.model.layers.interval import AdaptiveLookInterval, Every, check_look_interval
from truestep.model.layers.measures import MEASURES, NUM_BINS

MAX_LOOKS = 256  # that are kept; of more, every second one goes
Waiting = tuple[int, list[str], AsyncHostCopy]


class ModelLayerLooks:
    """Looks at one model; whoever trains it says when an update begins and ends."""

    def __init__(self, model: nn.Module, every: Every, *, counts_gradients: bool = False) -> None:
        self._counts_gradients = counts_gradients
        self.interval = AdaptiveLookInterval(every, LOOKS)
        self._modules = looking.layers_to_watch(model)
        self._layers: dict[str, looking.LayerMeasurements] = {}
        self._look: looking.LookHooks | None = None
        self._waiting: list[Waiting] = []
        self._named: set[tuple[str, str]] = set()
        self.looks: list[Look] = []
        self.findings: list[LayerFinding] = []

    @property
    def is_looking(self) -> bool:
        """Whether hooks are in place."""
        return self._look is not None

    def begin(self, update: int) -> None:
        """The next update is looked at, the one of this number."""
        self.interval.looked(update)
        self._look = looking.LookHooks(
            self._modules, self._layers, self.interval.clock, counts_gradients=self._counts_gradients
        )
        self._look.begin()

    def end(self, step: int) -> None:
        """The update is done; its numbers are on their way to the host."""
        look, self._look = self._look, None
        if look is None or (found := look.end()) is None:
            return
        names, rows = found
        # Nobody waits: it is read at a later step, when it has arrived.
        self._waiting.append((step, names, send_to_host(rows)))

    def arrived(self, *, wait: bool = False) -> list[Look]:
        """Take in what has come from the device; return it. New findings are added to `findings`."""
        new: list[Look] = []
        while self._waiting:
            step, names, rows = self._waiting[0]
            # In order: what follows has not come either.
            if not wait and not rows.has_arrived():
                break
            del self._waiting[0]
            new.append(self._make_look_from_measures(step, names, rows.read()))
            self.looks.append(new[-1])
            self._add_new_findings()
        if len(self.looks) > MAX_LOOKS:
            # The older half is thinned, again and again: the end is seen closely, the beginning over a long time.
            del self.looks[: MAX_LOOKS // 2 : 2]
        return new

    def _make_look_from_measures(self, step: int, names: list[str], rows: Tensor) -> Look:
        layers = []
        for name, row in zip(names, rows.tolist(), strict=True):
            back, gradient, weight, update, *measures = row
            known, counts = self._layers[name], measures[len(MEASURES) :]
            layers.append(
                LayerLook(
                    name=name,
                    kind=known.kind,
                    type=known.type,
                    output_gradient=_minus_one_to_none(back),
                    gradient=_minus_one_to_none(gradient),
                    weight=_minus_one_to_none(weight),
                    update=_minus_one_to_none(update),
                    counts=tuple(counts[:NUM_BINS]),
                    gradient_counts=tuple(counts[NUM_BINS:]),
                    **dict(zip(MEASURES, measures, strict=False)),
                )
            )
        return Look(step=step, layers=tuple(layers))

    def _add_new_findings(self) -> None:
        for finding in layer_findings_of_looks(self.looks, self.interval.span):
            if (finding.layer, finding.fault) not in self._named:
                self._named.add((finding.layer, finding.fault))
                self.findings.append(finding)


def _minus_one_to_none(value: float) -> float | None:
    return None if value == -1.0 else value


class LayerWatch(Result):
    """Looks at a model's layers until `close`, or the end of a `with` block."""

    def __init__(self, model: nn.Module, every: Every) -> None:
        self._looks = ModelLayerLooks(model, every)
        self._steps = 0
        self._handle = model.register_forward_pre_hook(HookOfOriginal(self._begin_look_before_forward))

    def _begin_look_before_forward(self, *_: Any) -> None:
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return
        with self._looks.interval.clock:
            if self._looks.is_looking:  # the update since the last forward is done
                self._looks.end(self._steps)
                self._looks.arrived()
            self._steps += 1
            if self._looks.interval.allows(self._steps):
                self._looks.begin(self._steps)

    @property
    def looks(self) -> list[Look]:
        """What was seen, oldest first; at most 256 looks."""
        self._looks.arrived(wait=True)
        return self._looks.looks

    @property
    def findings(self) -> list[LayerFinding]:
        """Which layers are dead, saturated, exploding or vanishing, each once."""
        self._looks.arrived(wait=True)
        return self._looks.findings

    def close(self) -> None:
        """Take all hooks away; what was seen stays."""
        self._handle.remove()
        if self._looks.is_looking:
            self._looks.end(self._steps)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def to_dict(self) -> dict[str, Any]:
        """Return looks and findings as dicts, lists and JSON values."""
        looks = [
            {"step": look.step, "layers": {each.name: layer_numbers_for_json(each) for each in look.layers}}
            for look in self.looks
        ]
        return {"schema_version": 1, "looks": looks, "findings": [vars(each) for each in self.findings]}

    def __rich__(self) -> RenderableType:
        from truestep.core.rich_imports import Group, Table, Text

        table = Table(box=None, pad_edge=False, header_style="bold")
        for heading in ("layer", "type", "mean", "spread", "dead", "saturated", "gradient", "update/weight"):
            table.add_column(heading, justify="left" if heading in ("layer", "type") else "right")
        for each in self.looks[-1].layers if self.looks else ():
            ratio = each.update / each.weight if each.update is not None and each.weight else None
            dead = f"{each.dead:.0%}" if each.kind == "relu" else "-"
            saturated = f"{each.saturated:.0%}" if each.kind in ("tanh", "sigmoid") else "-"
            values = number_text(each.mean), number_text(each.spread)
            flows = number_or_dash(each.gradient), number_or_dash(ratio)
            table.add_row(each.name, each.type, *values, dead, saturated, *flows)
        words = [
            f"{plural(len(self.looks), 'look')}, one in {plural(self._looks.interval.every, 'step')} or fewer"
        ]
        words += [f"{each.message}. {each.advice}" for each in self.findings]
        return Group(table, Text("\n".join(["", *words])))


def watch_layers(model: object, every: Every = "auto") -> LayerWatch:
    """Look at every layer of a training model each `every` steps; the numbers of the training stay as they are.

    A step is a call of the model with gradients on, up to the next one. With "auto" one step in 64 is looked at, and fewer where
    looks would take over 1 % of the time. Of each layer with a matrix and of each activation are
    kept: mean, spread, zeros, dead units, saturation, a histogram, gradients, and how much its weight moved. A `ts.Run` does so by
    itself.

    Raises:
        OptionError: the model is compiled: hooks would have it compiled again and again.
    """
    check_look_interval(every, "ts.watch_layers", "every", least=1, or_none=False)
    module = as_module(model, "ts.watch_layers")
    if hasattr(model, "_orig_mod") or any(map(is_compiled_layer, module.modules())):
        raise OptionError(
            "ts.watch_layers was given a compiled model, whose layers can't be watched: hooks would have it compiled anew. Watch "
            "the module before torch.compile, in a training of a few hundred steps."
        )
    return LayerWatch(module, every)
