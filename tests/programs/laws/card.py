# SPDX-License-Identifier: Apache-2.0
"""Card: on the stand-in of a second card a program ends where it ends on the host, and no update makes the host wait.

Where memory runs out there, it ends when it is started again, with the bits of the run that had enough.
"""

import json
import re
from pathlib import Path

from programs.compose import Program
from programs.laws.comparing import apart, differing, ends
from programs.laws.running import UNWATCHED, RefusedError, Trial, chance, notes, ran

ON_CARD = ("-c", "from programs import on_card; on_card.start()")
MIXED = re.compile(
    r"Expected all tensors to be on the same device|can't convert cuda:\d device type tensor to numpy"
)
OF_THE_STAND_IN = (
    "Cannot access accelerator device when none is available",  # it is in one thread: others page-lock nothing
    "torch/_dynamo",  # it is not compiled
    "_amp_foreach_non_finite_check_and_unscale_, stand-in",  # sparse gradients are the host's
)
FIRST = 2  # updates may make states, and compare buffers
WITHIN = 1e-4  # some optimizers compute otherwise on a card (foreach)
# An optimizer without a fused kernel, torch's own step, LBFGS: docs/laws/no-hidden-sync.md says so of each.
SAID_TO_WAIT = ("/step.py:_look", "/fused.py:_step_as_torch", "/engine/closures.py:")


def ends_alike_on_a_card(program: Program, folder: Path) -> str:
    """Hold a run on the stand-in beside one on the host: batches, losses, metrics and the end, and what the host waited for."""
    host = Trial(program, folder, "card", UNWATCHED).end("host")
    trial = Trial(program, folder, "card", UNWATCHED | {"law options": ', device="cuda:1"'})
    card = started(trial, "card")
    told = json.loads((card / "card.json").read_text("utf-8"))
    seen = apart(same_flags(ends(host)), same_flags(ends(card)), WITHIN)
    seen += apart(*map(noted, (host, card)), WITHIN)
    for read, times in told["reads"].items():
        seen += (
            [f"{times} times: {read}"]
            if times > FIRST and not any(map(read.__contains__, SAID_TO_WAIT))
            else []
        )
    if seen:
        return trial.same(seen)
    fails = chance(program, "card").randrange(1, told["allocations"])
    short = started(trial, "short", FAILS=fails)
    found_its_size = "micro_batch_found" in repr(program)  # in other parts, sums are rounded otherwise
    far = apart(ends(card), ends(short), WITHIN) if found_its_size else differing(ends(card), ends(short))
    return trial.same([f"memory ran out at allocation {fails}: {each}" for each in far])


def started(trial: Trial, name: str, **more: object) -> Path:
    """Run a program on the stand-in to its end, again where memory runs out."""
    folder = trial.place(name)
    more |= {"TRUESTEP_FULL_TRACEBACK": 1}
    ended = ran(folder, *ON_CARD, **more)
    if "FAILS" in more and ended.returncode and "out of memory (stand-in)" in ended.stderr:
        ended = ran(folder, *ON_CARD, TRUESTEP_FULL_TRACEBACK=1)
    said = ended.stdout + ended.stderr
    if any(map(said.__contains__, OF_THE_STAND_IN)) or (MIXED.search(said) and is_own(said, folder)):
        raise RefusedError(said)  # such as a tensor that it makes on the host for a loss on the card
    trial.check(name, ended.returncode, said)
    return folder


def is_own(said: str, folder: Path) -> bool:
    """Whether the innermost line of a traceback that is the program's or ours is the program's, or a call of its model."""
    files = [each for each in re.findall(r'File "([^"]+)", line', said) if "/tests/" not in each]
    found = [
        each for each in files if each == "main.py" or each.startswith(str(folder)) or "/truestep/" in each
    ]
    found = [each for each in found if not each.endswith("engine/learner.py") and "/instrument/" not in each]
    return bool(found) and "/truestep/" not in found[-1]


def noted(folder: Path) -> list[object]:
    """Return the batches and losses of each step, losses as numbers."""
    found = notes(folder)
    return [
        {**each, "value": float.fromhex(each["value"])} if each["what"] == "loss" else each for each in found
    ]


def same_flags(tree: object) -> object:
    """Return a state without what chooses a kernel, which follows the device."""
    if isinstance(tree, dict):
        return {name: same_flags(each) for name, each in tree.items() if name not in ("fused", "foreach")}
    return [same_flags(each) for each in tree] if isinstance(tree, list | tuple) else tree
