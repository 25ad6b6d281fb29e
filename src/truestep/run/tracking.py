# SPDX-License-Identifier: Apache-2.0
"""What else is kept with a run: target networks, replay buffers, environments, schedules of one's own."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from truestep.checkpoints.weight_mismatches import compare_weight_names
from truestep.core.errors import CheckpointError, OptionError, names_hint
from truestep.core.text_formatting import a_type, bytes_text, keyword_text, variable_text
from truestep.engine.data import BatchSource
from truestep.engine.learner import Learner
from truestep.engine.parts import LearnerParts
from truestep.engine.shared_context import LearnerContext
from truestep.run.options import check_run_name
from truestep.run.user_state import check_run_state_value, decode_run_state, encode_run_state, run_state_bytes


class TrackedStateMethods(NamedTuple):
    """How the state of one kind of object is taken and put back."""

    take: Callable[[Any], Any]
    put_back: Callable[[Any, Any], Any]


_GENERATORS: dict[type, TrackedStateMethods] = {
    torch.Generator: TrackedStateMethods(lambda g: g.get_state(), lambda g, state: g.set_state(state)),
    np.random.Generator: TrackedStateMethods(
        lambda g: g.bit_generator.state, lambda g, state: setattr(g.bit_generator, "state", state)
    ),
    np.random.RandomState: TrackedStateMethods(
        lambda g: g.get_state(legacy=False), lambda g, state: g.set_state(state)
    ),
    random.Random: TrackedStateMethods(lambda g: g.getstate(), lambda g, state: g.setstate(state)),
}
_STATEFUL = TrackedStateMethods(lambda o: o.state_dict(), lambda o, state: o.load_state_dict(state))


class PerProcessBuffers:
    """The buffers of a learner that each process has of its own."""

    def __init__(self, module: torch.nn.Module, names: Sequence[str]) -> None:
        self._module, self._names = module, names

    @classmethod
    def of(cls, learner: LearnerParts) -> "PerProcessBuffers | None":
        """Return those of a learner, None where it has none."""
        rules = learner.weights.buffer_rules
        names = [name for name, rule in rules.items() if rule == "own"]
        return cls(learner.module, names) if names else None

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return them by name."""
        return {name: self._module.get_buffer(name).detach().clone() for name in self._names}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Put them back."""
        with torch.no_grad():
            for name, value in state.items():
                self._module.get_buffer(name).copy_(value)


class TrackedObjects:
    """Objects by name; whatever has `state_dict()` and `load_state_dict()`, and generators of random numbers."""

    def __init__(self) -> None:
        self._objects: dict[str, Any] = {}
        self.per_rank: set[str] = set()
        """Names of those that each process has a state of its own of."""

    def add(self, objects: Mapping[str, Any], *, per_rank: bool = False) -> None:
        """Keep these too; each must give a state that can be saved now, and have a name of its own."""
        for name, tracked in objects.items():
            if name in self._objects:
                raise OptionError(
                    f"run.track({keyword_text(name)}) "
                    "was called twice. Each name stands for one object, whose state is found again by it: "
                    f"call it once, or give the second object another name."
                )
            check_run_name(name, by="run.track was given")
            _check_is_trackable(name, tracked)
            # Taken once now: what can't be saved is refused where it is tracked, not at the first save.
            _encode_tracked_state(name, tracked)
        self._objects |= objects
        self.per_rank |= objects.keys() if per_rank else set()

    @staticmethod
    def tracked_learner_module_messages(
        objects: Mapping[str, Any], learners: Iterable[LearnerParts]
    ) -> Iterator[str]:
        """Yield what to say of objects that are a learner's module itself: a target network that follows at once, most likely."""
        for learner in learners:
            for name in (name for name, tracked in objects.items() if tracked is learner.module):
                copied = f"{variable_text(name, 'target')} = copy.deepcopy({variable_text(learner.name, 'net')}.module)"
                yield (
                    f"run.track({keyword_text(name)}) "
                    f"was given the module of {learner.name!r} itself, so {name} changes with each update "
                    f"of it. For a target network make a copy: {copied}. A learner's own "
                    "module is kept anyway"
                )

    def add_per_process_buffers(self, learner: LearnerParts) -> None:
        """Keep the buffers of a learner that each process has of its own."""
        if own := PerProcessBuffers.of(learner):
            self.add({f"buffers of {learner.name}": own}, per_rank=True)

    def objects(self) -> list[Any]:
        """Return the objects themselves."""
        return [*self._objects.values()]

    def named(self) -> Iterator[tuple[str, Any]]:
        """Yield each name with its object."""
        yield from self._objects.items()

    def names_of_shared_objects(self) -> list[str]:
        """Return the names of those whose state is one for all processes."""
        return sorted(self._objects.keys() - self.per_rank)

    def state(self) -> dict[str, Any]:
        """Return the state of every object as a tree of tensors and JSON values."""
        return {name: _encode_tracked_state(name, tracked) for name, tracked in self._objects.items()}

    def divided(self, states: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return, of the states of all objects, those that are the same for all processes, and those of this one alone."""
        own = {name: state for name, state in states.items() if name in self.per_rank}
        return {name: state for name, state in states.items() if name not in own}, own

    def note_sizes(self, states: Mapping[str, Any], context: LearnerContext) -> None:
        """Note how large each state is among the run's choices."""
        for name, size in tracked_sizes(states).items():
            context.choose(f"tracked {name}", size, "run.track keeps its state in every checkpoint")

    def differences(self, saved: Mapping[str, Any]) -> list[str]:
        """Return why the states in a checkpoint are not those of the objects here; each is a sentence."""

        def tracked_names_hint(name: str) -> str:
            return names_hint(name, self._objects) if self._objects else "Nothing is."

        gone = [
            f"The checkpoint holds the state of {name!r}, which is not tracked now. {tracked_names_hint(name)} "
            f"Track it again with run.track({keyword_text(name)})."
            for name in saved
            if name not in self._objects
        ]
        new = [
            f"{name!r} is tracked now and is not in the checkpoint, so it would start afresh. {names_hint(name, saved)}"
            for name in self._objects
            if name not in saved
        ]
        return gone + new

    def check(self, saved: Mapping[str, Any]) -> None:
        """Raise a CheckpointError where a module's tensors are not those that were saved."""
        for name, tracked in self._objects.items():
            if not isinstance(tracked, torch.nn.Module) or name not in saved:
                continue
            found = compare_weight_names(
                _tensor_shapes(tracked.state_dict()), _tensor_shapes(decode_run_state(saved[name]))
            )
            renamed = [pair for pair in found.pairs.items() if pair[0] != pair[1]]
            if found.differences or renamed:
                raise CheckpointError(
                    f"The checkpoint does not fit the module that is tracked as {name!r}. In the checkpoint:\n{found.differences}"
                )

    def load(self, saved: Mapping[str, Any], *, copy: bool) -> None:
        """Put every state back into its object."""
        for name, tracked in self._objects.items():
            if name not in saved:
                continue
            try:
                _state_methods_for(tracked).put_back(tracked, decode_run_state(saved[name], copy=copy))
            except Exception as error:
                raise CheckpointError(
                    f"{name!r} ({type(tracked).__name__}) did not take back the state that the run was saved with: "
                    f"{type(error).__name__}: {error}"
                ) from error


def tracked_sizes(saved: Mapping[str, Any]) -> dict[str, str]:
    """Return how large each state is, for people."""
    return {name: bytes_text(run_state_bytes(tree)) for name, tree in saved.items()}


def _state_methods_for(tracked: Any) -> TrackedStateMethods:
    return next((each for kind, each in _GENERATORS.items() if isinstance(tracked, kind)), _STATEFUL)


def _check_is_trackable(name: str, tracked: Any) -> None:
    if isinstance(tracked, Learner | BatchSource):
        kind = "learner" if isinstance(tracked, Learner) else "source of batches"
        raise OptionError(
            f"run.track({keyword_text(name)}) "
            f"was given a {kind}, which the run keeps anyway. Track what it does not know: target networks, "
            "buffers, environments."
        )
    if isinstance(tracked, type):
        raise OptionError(
            f"run.track({keyword_text(name, tracked.__name__)}) was given a class; make an object first."
        )
    keeping = _state_methods_for(tracked)
    methods = ("state_dict", "load_state_dict") if keeping is _STATEFUL else ()
    missing = [f"{method}()" for method in methods if not callable(getattr(tracked, method, None))]
    if missing:
        raise OptionError(
            f"run.track({keyword_text(name)}) was given {a_type(tracked)}, which has no {' and no '.join(missing)}. Give it both "
            f"(tensors, arrays and JSON values out, the same in), or keep plain values in run.state[{name!r}]."
        )


def _encode_tracked_state(name: str, tracked: Any) -> Any:
    keeping = _state_methods_for(tracked)
    call = "state_dict()" if keeping is _STATEFUL else "state"
    try:
        value = keeping.take(tracked)
    except Exception as error:
        error.add_note(
            f"truestep: raised by the {call} of what run.track was given as {name!r}, which every checkpoint keeps."
        )
        raise
    check_run_state_value(value, f"{name}.{call}")
    return encode_run_state(value)


def _tensor_shapes(state: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in state.items() if isinstance(value, torch.Tensor)}
