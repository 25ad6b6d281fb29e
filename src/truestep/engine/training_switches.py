# SPDX-License-Identifier: Apache-2.0
"""What a loop may switch on its way, and is in no tensor: which parameters train, modes and options of layers, statistics that
stand."""

from functools import partial
from typing import Any

from torch import nn

from truestep.core.text_formatting import first_few
from truestep.engine.layer_options import LayerOptions, Moved
from truestep.engine.weights import LearnerWeights
from truestep.nn.freezing import freeze_only_these_statistics, layers_with_frozen_statistics

# What each is, in a checkpoint and to a reader: where the code begins with more of them than before, and with fewer.
_SAID = {
    "frozen": ("frozen", "no longer frozen"),
    "modes": (
        "in another mode than the module around it",
        "no longer in another mode than the module around it",
    ),
    "held": ("statistics held", "statistics no longer held"),
}
_NAMED = 4
Switched = dict[str, list[str]]


class ModuleSwitches:
    """The switches of a learner: as its code began, and as they are, or were where the loop was left."""

    def __init__(self, module: nn.Module, weights: LearnerWeights) -> None:
        self._module, self._weights = module, weights
        self._options = LayerOptions(module)
        self._at_exit: tuple[Switched, Moved] | None = None
        self._at_start = self._current_switches()

    def begin(self) -> None:
        """Take them as what the code begins with."""
        self._options.begin()
        self._at_start = self._current_switches()

    def note_exit(self) -> None:
        """Keep them: what code behind the loop switches before the run is saved, for a last evaluation, is not of the loop."""
        self._at_exit = self._current_switches(), self._options.moved()

    def enter(self) -> None:
        """Be as they are: the loop goes on."""
        self._at_exit = None

    def rank_comparison_state(self) -> dict[str, Any]:
        """Return what must be the same on all ranks, as JSON, in words: a checkpoint keeps what rank 0 has."""
        now, moved = self._kept_switches()
        numbers = self._options.numbers(moved)
        said = {
            f"what is {words}": [path or "the module" for path in now[name]]
            for name, (words, _) in _SAID.items()
        }
        return said | numbers

    def _kept_switches(self) -> tuple[Switched, Moved]:
        return (self._current_switches(), self._options.moved()) if self._at_exit is None else self._at_exit

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: as the code began, and as they are."""
        now, moved = self._kept_switches()
        begun = {_start_key(name): names for name, names in self._at_start.items()}
        return now | begun | self._options.state(moved)

    def differences(self, saved: dict[str, Any]) -> list[str]:
        """Return with what the code begins otherwise than when `saved` was taken; nothing of what an older one lacks."""
        found = self._options.differences(saved)
        for name, words in _SAID.items():
            if name in saved and not self._has_same_start(saved, name):
                before, now = set(saved[_start_key(name)]), set(self._at_start[name])
                listed = zip(words, (sorted(now - before), sorted(before - now)), strict=True)
                found += [
                    f"{word} {first_few([name or 'the module' for name in names], _NAMED)}"
                    for word, names in listed
                    if names
                ]
        return found

    def load(self, saved: dict[str, Any]) -> None:
        """Switch all as it was at the save, but for what the code begins with otherwise: that is an edit, and used."""
        for name, switch in (
            ("frozen", self._freeze_parameters),
            ("modes", self._set_modes),
            ("held", partial(freeze_only_these_statistics, self._module)),
        ):
            if name in saved and self._has_same_start(saved, name):
                self._at_start[name] = saved[_start_key(name)]
                switch(set(saved[name]))
        self._options.load(saved)
        self.enter()

    def _has_same_start(self, saved: dict[str, Any], name: str) -> bool:
        """Whether the code begins as it did; a notebook's cell that is run again begins with a module as the loop has left it."""
        return self._at_start[name] in (saved[_start_key(name)], saved[name])

    def _current_switches(self) -> Switched:
        return {
            "frozen": [name for name, parameter in self._weights.named if not parameter.requires_grad],
            "modes": _layers_in_other_mode(self._module),
            "held": layers_with_frozen_statistics(self._module),
        }

    def _freeze_parameters(self, names: set[str]) -> None:
        for name, parameter in self._weights.named:
            if parameter.requires_grad == (name in names):
                parameter.requires_grad_(name not in names)

    def _set_modes(self, others: set[str]) -> None:
        modes: dict[str, bool] = {}
        for path, layer in self._module.named_modules():
            layer.training = modes[path] = _mode_of_parent(path, modes) != (path in others)


def _start_key(name: str) -> str:
    return f"{name}_at_start"


def _layers_in_other_mode(module: nn.Module) -> list[str]:
    """Return the paths of the layers that are not in the mode of the module around them; nothing is around but training."""
    modes = {path: layer.training for path, layer in module.named_modules()}
    return [path for path, mode in modes.items() if mode != _mode_of_parent(path, modes)]


def _mode_of_parent(path: str, modes: dict[str, bool]) -> bool:
    """Return the mode of the module around a layer; of one that is known by another path, the nearest further out."""
    while path:
        path = path.rpartition(".")[0]
        if path in modes:
            return modes[path]
    return True
