# SPDX-License-Identifier: Apache-2.0
"""What stands inside of a program that a law looks into: it notes batches, losses and ends, and kills itself at a moment.

`python -c "from programs import inside; inside.start()"` runs the program of its folder. The environment says the rest: how
many WORKERS load, the micro-batch (PARTS), whether the run watches itself (WATCHED), how often it saves (EVERY), and the step to be
killed at (STOP).
`DISTURBED="1000 15"` is signal 15 at call 1000 of a Python function since the first batch, or since the program began (`"1000 15
early"`); `"20 raises"` and `"20 leaves"` are for call 20 of a function of the program's own; `""` counts the calls alone.
"""

import atexit
import builtins
import hashlib
import json
import os
import random
import signal
import sys
from collections import Counter
from functools import cache, wraps
from pathlib import Path

import numpy as np
import torch
from programs.recording import run_program

RANK, SIZE = os.environ.get("RANK", "0"), int(os.environ.get("WORLD_SIZE", "1"))


def note(what: str, step: int, value: object) -> None:
    """Write down a line, at once, since this process may be killed."""
    with Path(f"notes-{RANK}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"what": what, "step": step, "value": value, "size": SIZE}) + "\n")


def leaves(tree):
    """Return what a batch is made of, as tensors."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, str | float | int):
        return []
    if hasattr(tree, "__dict__"):  # a dataclass, a namespace, an object of one's own
        tree = vars(tree)
    members = tree.values() if isinstance(tree, dict) else tree
    return [leaf for member in members for leaf in leaves(member)]


def bits(tensor: torch.Tensor) -> bytes:
    """Return the bytes of a tensor's values."""
    return tensor.detach().cpu().to_dense().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def unseen(function):
    """Return a function whose own operations on tensors are no part of the training: a watch of the run sees none of them."""

    @wraps(function)
    def called(*given):
        with torch._C.DisableTorchFunction():
            return function(*given)

    return called


@unseen
def note_batch(run, batch) -> None:
    """Note a digest of each row of a batch; where its parts have no common rows, of the one of real numbers, or of each part."""
    parts = leaves(batch)
    floating = [part for part in parts if part.is_floating_point() and not part.is_sparse]
    if len({len(part) for part in parts}) > 1 and len(floating) == 1 and not isinstance(batch, list):
        parts = floating  # the nodes of graphs
    if len({len(part) for part in parts}) == 1:
        rows = [b"".join(bits(part[row]) for part in parts) for row in range(len(parts[0]))]
    else:
        rows = [*map(bits, parts)]
    note("batch", run.step, [hashlib.sha256(row).hexdigest()[:12] for row in rows])


FROM_FIRST_BATCH: list = []
"""What is told of each call once there is a batch: before it, hundreds of thousands of calls import packages."""


COUNTED: list[Counter] = []
"""The calls since the first batch, by file, where they are counted."""

AT_BATCHES: list[tuple[int, Counter]] = []
"""The epoch of each batch, and how many there had been as it came."""


def note_drawn_batch(run, batch) -> None:
    """Note a batch, and what the body of the loop draws from the three streams that everybody shares."""
    if FROM_FIRST_BATCH:
        sys.settrace(FROM_FIRST_BATCH.pop())
    for calls in COUNTED:
        AT_BATCHES.append((run.epoch, calls.copy()))
    note_batch(run, batch)
    note("draws", run.step, [random.random(), float(np.random.rand()), torch.rand(()).item()])


@unseen
def note_loss(run, loss) -> None:
    """Note the bits of a loss."""
    note("loss", run.step, loss.item().hex())


@unseen
def note_weights(run, learners) -> None:
    """Note a digest of all weights that this process has whole, which the others have as well."""
    digest = hashlib.sha256()
    for learner in learners:
        for weight in learner.parameters():
            digest.update(b"" if hasattr(weight, "device_mesh") else bits(weight))
    note("weights", run.step, digest.hexdigest()[:12])


def note_end(learners) -> None:
    """Keep all that learners hold at the end on this process; of divided weights it has a part, and says which."""
    torch.save([as_it_is_here(learner.training_state()) for learner in learners], f"learners-{RANK}.pt")


def as_it_is_here(tree):
    """Return a state with the part of each divided tensor that is here, and where it lies in the whole."""
    if hasattr(tree, "device_mesh"):
        (box,) = tree.__create_chunk_list__()
        return {"part": tree.to_local(), "from": list(box.offsets), "whole": list(tree.shape)}
    if isinstance(tree, dict):
        return {name: as_it_is_here(member) for name, member in tree.items()}
    if isinstance(tree, list | tuple):
        return [as_it_is_here(member) for member in tree]
    return tree


def note_figure(run, figure, model, rows) -> None:
    """Note a figure of an evaluation beside the mean of all rows by hand, in evaluation mode and float64."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    with torch.no_grad():
        expected = (model(rows[0]).argmax(1) == rows[1]).double().mean().item()
    for module, mode in modes:
        module.training = mode
    note("figure", run.step, [float(figure), expected])


def state_of(model) -> dict[str, object]:
    """Return the bits of what an update of another learner must leave: weights, gradients, buffers, modes, flags."""
    found: dict[str, object] = {}
    for name, weight in model.named_parameters():
        gradient = weight.grad
        found[name] = (bits(weight), weight.requires_grad, None if gradient is None else bits(gradient))
    found |= {f"buffer {name}": bits(each) for name, each in model.named_buffers()}
    return found | {f"mode of {name}": module.training for name, module in model.named_modules()}


BEFORE: dict[str, object] = {}


@unseen
def before_another(model) -> None:
    """Keep a learner's state before another learner's update."""
    BEFORE.clear()
    BEFORE.update(state_of(model))


@unseen
def behind_another(run, model) -> None:
    """Note what of a learner another learner's update has moved."""
    after = state_of(model)
    for name in BEFORE.keys() | after.keys():
        if BEFORE.get(name) != after.get(name):
            note("moved", run.step, name)


SHARES: dict[str, torch.Tensor] = {}


def watch_parts(model) -> None:
    """Add up the sizes of what each single row adds to each gradient."""
    if builtins.PARTS != 1:
        return
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            SHARES[name] = torch.zeros_like(weight).abs()
            weight.register_hook(share_of(name))


def share_of(name: str):
    """Return a hook that adds up the sizes of what comes to a gradient, and changes nothing."""

    def add(gradient):
        SHARES[name] += gradient.detach().to_dense().abs()

    return add


def note_gradients(run, model, loss) -> None:
    """Keep the gradients of the first update, and leave."""
    del run, loss
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    torch.save(
        {"gradients": {k: v.to_dense() for k, v in gradients.items()}, "shares": SHARES, "rows": 6},
        "gradients.pt",
    )
    os._exit(0)


def stop_at(run) -> None:
    """Kill this process in the middle, where the environment says at which step."""
    if run.step >= int(os.environ.get("STOP", "1000000")):
        os.kill(os.getpid(), signal.SIGKILL)


def is_own(file: str) -> bool:
    """Return whether a file is the program's own."""
    return file == "main.py" or file.startswith(str(Path.cwd()))


def disturbance(said: str):
    """Return what is told of each call of a Python function in the main thread, and ends this process at one of them."""
    if not said:
        return counting()
    moment, way, *_ = said.split()
    return killing(int(moment), int(way)) if way.isdigit() else failing(int(moment), way)


def counting():
    """Return what counts the calls; at the end it writes down how many there had been as each batch came, and at the end.

    Before each number of calls stands the epoch, behind it how many were of the program's own functions.
    """
    calls, pid = Counter(), os.getpid()
    COUNTED.append(calls)

    def count(frame, event, argument) -> None:
        calls[frame.f_code.co_filename] += 1

    def tell() -> None:
        if os.getpid() == pid:  # workers, which are forked, count for nothing
            sys.settrace(None)
            counted = [
                [epoch, each.total(), sum(times for file, times in each.items() if is_own(file))]
                for epoch, each in (*AT_BATCHES, (None, calls))
            ]
            Path("calls.json").write_text(json.dumps(counted), "utf-8")

    atexit.register(tell)
    return count


def killing(moment: int, number: int):
    """Return what sends this process a signal at a call."""
    calls, pid = 0, os.getpid()

    def count(frame, event, argument) -> None:
        nonlocal calls
        calls += 1
        if calls == moment and os.getpid() == pid:
            os.kill(pid, number)

    return count


def failing(moment: int, way: str):
    """Return what raises, or leaves, at a call of a function of the program's own."""
    calls, pid, own = 0, os.getpid(), cache(is_own)

    def count(frame, event, argument) -> None:
        nonlocal calls
        calls += own(frame.f_code.co_filename)
        if calls == moment and os.getpid() == pid and own(frame.f_code.co_filename):
            raise RuntimeError("the program fails") if way == "raises" else SystemExit(3)

    return count


def start() -> None:
    """Run the program of this folder with all of this at hand."""
    builtins.WORKERS = int(os.environ.get("WORKERS", "0"))
    parts = os.environ.get("PARTS", "None")
    builtins.PARTS = None if parts == "None" else int(parts)
    known = (note_batch, note_drawn_batch, note_loss, note_weights, note_end, note_figure, note_gradients)
    for function in (*known, before_another, behind_another, watch_parts, stop_at):
        setattr(builtins, function.__name__, function)
    builtins.EVERY = int(os.environ.get("EVERY", "1000000"))
    builtins.WATCHED = os.environ.get("WATCHED", "True") == "True"
    if "DISTURBED" in os.environ:
        said = os.environ["DISTURBED"]
        FROM_FIRST_BATCH.append(disturbance(said))
        if said.endswith("early"):
            sys.settrace(FROM_FIRST_BATCH.pop())
    run_program()
