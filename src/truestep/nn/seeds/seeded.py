# SPDX-License-Identifier: Apache-2.0
"""`ts.seed_everything`: it takes effect at once, reports what may still vary, and undoes itself as a `with` block."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from truestep.core.errors import OptionError, check_choice, check_number
from truestep.core.random_streams import host_rng_states, set_host_rng_states
from truestep.core.result_display import RenderableType, Result, facts_table
from truestep.nn.seeds.repeatability import (
    Flags,
    Gap,
    make_deterministic,
    operations_without_deterministic_form,
    read_determinism_flags,
    repeatability_gaps,
    repeatability_gaps_on_other_machines,
)

Deterministic = bool | Literal["warn"]
_WORD = 0xFFFFFFFF
LARGEST = 2**64 - 1  # the largest that torch.manual_seed takes


def seed_streams(seed: int) -> tuple[str, ...]:
    """Start python's, NumPy's and torch's global streams at `seed`, those of every device included; return their names."""
    random.seed(seed)
    # NumPy takes words of 32 bits: several keep seeds apart that differ in their upper half alone
    np.random.seed(seed if seed <= _WORD else [seed & _WORD, seed >> 32])
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:  # torch's own function asks for each kind, and looks at the stack for it
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
    return ("python", "numpy", "torch", *([f"torch, every {accelerator.type} device"] if accelerator else []))


class SavedRandomStreams:
    """All global streams, flags and environment variables as they were when this was made; a `with` block puts them back, once."""

    def __init__(self) -> None:
        self.entered = False
        self._flags = read_determinism_flags()
        self._host = host_rng_states()
        self._torch = torch.get_rng_state()
        self._torch_seed = torch.initial_seed()
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        self._module: Any = torch.get_device_module(accelerator) if accelerator else None
        self._devices: list[Tensor] | None = None
        if self._module is not None and getattr(self._module, "is_initialized", lambda: True)():
            # mps has one device, and only the functions for one
            read = getattr(self._module, "get_rng_state_all", lambda: [self._module.get_rng_state()])
            self._devices = [state.clone() for state in read()]

    def restore(self) -> None:
        """Put everything back as it was."""
        self._flags.restore()
        set_host_rng_states(self._host)
        torch.set_rng_state(self._torch)
        if self._module is None:
            return
        if self._devices is None:
            # The device had not started, so there was no state to take: it would have started, or has
            # meanwhile, at the seed that torch.manual_seed gave to all devices.
            self._module.manual_seed_all(self._torch_seed)
        elif hasattr(self._module, "set_rng_state_all"):
            self._module.set_rng_state_all(self._devices)
        else:
            self._module.set_rng_state(self._devices[0])


@dataclass(frozen=True, kw_only=True)
class Seeded(Result):
    """What was seeded, and what may still vary.

    Attributes:
        seed: where the streams started.
        streams: their names.
        flags: the flags that decide about repeatability, as they are now.
        between_runs: what may differ between two runs of one program here; empty means: nothing that is known.
        between_machines: in what another machine, version or device may give other bits.
        without_deterministic_form: operations that raise with `deterministic=True`, warn with "warn", and may vary else.
    """

    seed: int
    streams: tuple[str, ...]
    flags: Flags
    between_runs: tuple[Gap, ...]
    between_machines: tuple[Gap, ...]
    without_deterministic_form: tuple[str, ...]
    _before: SavedRandomStreams = field(repr=False, compare=False)

    def generator(self, number: int = 0) -> torch.Generator:
        """Return a generator of this seed for a DataLoader: `DataLoader(..., generator=seeded.generator())`.

        Its order, and the streams that torch gives to each of its workers (torch's, NumPy's and python's), then depend on
        the seed alone and not on what was drawn before. Another `number` gives another stream, for another loader. It is
        all that workers need: no `worker_init_fn`.
        """
        check_number("Seeded.generator", "number", number, example=1, least=0)
        # hashed: seed 1 with number 0 must not be the stream of seed 0 with number 1
        digest = hashlib.sha256(f"{self.seed}/{number}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))

    def __rich__(self) -> RenderableType:
        from truestep.core.rich_imports import Group

        shown: list[RenderableType] = [
            f"seed {self.seed}: {', '.join(self.streams)}",
            _gaps_section("may differ between two runs here", self.between_runs),
            _gaps_section("may differ elsewhere", self.between_machines),
        ]
        if self.without_deterministic_form:
            verb = "may vary"
            if self.flags.deterministic_algorithms:
                verb = "warn" if self.flags.warn_only else "raise"
            title = f"\noperations without a deterministic form, which {verb}"
            shown.append(facts_table(title, (("", each) for each in self.without_deterministic_form)))
        return Group(*shown)

    def __enter__(self) -> Self:
        if self._before.entered:
            raise OptionError(
                "This ts.seed_everything(...) has had its `with` block already, and undoes itself once. "
                "Call it anew for each block."
            )
        self._before.entered = True
        return self

    def __exit__(self, *_: object) -> None:
        self._before.restore()


def _gaps_section(title: str, gaps: Sequence[Gap]) -> RenderableType:
    facts = [(gap.name, f"{gap.says}\nfix: {gap.fix}" if gap.fix else gap.says) for gap in gaps]
    return facts_table(f"\n{title}", facts or [("nothing that is known", "")])


def seed_everything(seed: int, *, deterministic: Deterministic = False) -> Seeded:
    """Start python's, NumPy's and torch's global streams (every device's) at `seed`; report what may still vary.

    It takes effect at once. As a `with` block it also ends: streams, flags and environment variables are then put back as
    they were before the call, also after an exception. `ts.Run` calls it with its own seed.

    Args:
        seed: a whole number from 0 to 2**64 - 1. Of a larger one than 2**32 - 1 torch's stream of the CPU takes the lower
            32 bits, so stay below if seeds are to differ.
        deterministic: True chooses deterministic algorithms (torch's, cuDNN's, cuBLAS's), and operations without one raise;
            "warn" lets those run with a warning; False leaves the flags as they are.

    Generators made by hand (`np.random.default_rng()`, `torch.Generator()`) have streams of their own, and a device that
    was seeded before it started (`torch.cuda.manual_seed` alone) is put back to the seed of `torch.manual_seed`.

    Raises:
        OptionError: for another seed, or another value of `deterministic`.

    Source: https://docs.pytorch.org/docs/stable/notes/randomness.html
    """
    seed = check_seed(seed)
    check_choice("ts.seed_everything", "deterministic", deterministic, (True, False, "warn"))
    before = SavedRandomStreams()
    in_time = make_deterministic(warn_only=deterministic == "warn") if deterministic else True
    streams = seed_streams(seed)
    flags = read_determinism_flags()
    return Seeded(
        seed=seed,
        streams=streams,
        flags=flags,
        between_runs=tuple(repeatability_gaps(flags, in_time=in_time)),
        between_machines=tuple(repeatability_gaps_on_other_machines()),
        without_deterministic_form=operations_without_deterministic_form(),
        _before=before,
    )


def check_seed(seed: Any, *, by: str = "ts.seed_everything") -> int:
    """Return `seed` as an int, or raise an OptionError unless every stream can start there."""
    check_number(by, "seed", seed, example=0)
    if not 0 <= seed <= LARGEST:
        raise OptionError(f"seed={seed}: only from 0 to 2**64 - 1 do python and torch tell all seeds apart.")
    return int(seed)
