# SPDX-License-Identifier: Apache-2.0
"""Each law once on a device, which the property tests hold on a CPU over drawn programs; then its speed, memory, and all cards."""

import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import truestep as ts
from truestep.checkpoints import CheckpointStore
from truestep.core.device_specific import (
    is_async_device,
    is_cpu_device,
    num_cuda_devices,
    peak_device_bytes,
    synchronize_device,
)
from truestep.selfcheck import training as small
from truestep.selfcheck.training import (
    CheckedDevice,
    Seen,
    compare_tensors,
    make_test_network,
    per_example_loss_function,
    train_for_epochs,
    weight_copies_on_cpu,
)

STEPS, ROUNDS = 50, 5
SYNC_KINDS: dict[str, dict[str, Any]] = {"plain": {}, "clip": {"clip": ts.ClipNorm(1.0)}}
SYNC_KINDS |= {"split": {"micro_batch": 7}, "average": {"ema": ts.EMA()}}
SYNC_KINDS |= {name: {"precision": name} for name in ("bf16-mixed", "fp16-mixed")}


def split(place: CheckedDevice) -> Seen:
    """Give the gradient of a batch whole and in parts of 7; it may differ by the law's bound."""
    batch = place.batch()
    gradients = [_gradient_seen_by_optimizer(place, f"split-{size}", batch, size) for size in (None, 7)]
    bound = 16 * math.sqrt(14) * 2.0**-24
    shares = zip(*gradients, _per_example_gradient_sizes(place, batch), strict=True)
    far = max(float((a - b).norm() / (bound * size.norm())) for a, b, size in shares)
    return Seen("passed" if far <= 1 else "FAILED", f"14 parts and one: at {far:.3f} of the bound")


def _gradient_seen_by_optimizer(
    place: CheckedDevice, name: str, batch: list[Tensor], micro_batch: int | None
) -> list[Tensor]:
    """Return the gradient that the optimizer got."""
    got: list[Tensor] = []
    module = make_test_network(dropout=0)
    with place.run(name) as run:
        net = run.learner(module, lambda p: torch.optim.SGD(p, lr=1e-3), micro_batch=micro_batch)
        for _ in run.steps(1):
            net.optimizers[0].register_step_pre_hook(
                lambda *_: got.extend(small.gradient_copies_on_cpu(module))
            )
            net.update(per_example_loss_function(net), batch)
    return got


def _per_example_gradient_sizes(place: CheckedDevice, batch: list[Tensor]) -> list[Tensor]:
    """Return Σᵢ|gᵢ|, gᵢ being example i's share of the gradient."""
    module = make_test_network(dropout=0).to(place.device)
    sums = [torch.zeros(each.shape, dtype=torch.float64) for each in module.parameters()]
    for each in per_example_loss_function(module)(batch).unbind():
        gradients = torch.autograd.grad(each / small.NUM_ROWS, [*module.parameters()], retain_graph=True)
        for total, gradient in zip(sums, gradients, strict=True):
            total += gradient.abs().cpu().double()
    return sums


def plain(place: CheckedDevice) -> Seen:
    """End where the loop by hand ends, with the same flags of the optimizer."""
    batches = [*zip(*(torch.split(each, small.BATCH) for each in place.batch()), strict=True)]
    with place.run("plain") as run:
        net = run.learner(make_test_network(dropout=0), small.adamw)
        for _, batch in zip(run.steps(len(batches)), batches, strict=True):
            net.update(per_example_loss_function(net), batch)
        fused = net.optimizers[0].defaults["fused"]
        found = weight_copies_on_cpu(net.module)
    module = make_test_network(dropout=0).to(place.device)
    optimizer = small.adamw(module.parameters(), fused=fused)
    for batch in batches:
        small.step_by_hand(module, optimizer, batch)
    return compare_tensors(weight_copies_on_cpu(module), found, "6 updates and the loop by hand")


def resume(place: CheckedDevice) -> Seen:
    """Stop after one of two epochs and go on."""
    whole = train_for_epochs(place, "whole")
    train_for_epochs(place, "parts", num_epochs=1)
    return compare_tensors(whole, train_for_epochs(place, "parts"), "stopped after one epoch and not")


def never_empty(place: CheckedDevice) -> Seen:
    """Save, and write to the weights at once: the checkpoint has what they were."""
    weight = torch.zeros(1 << 20, device=place.device)
    with CheckpointStore(place.folder / "store") as store:
        for step in range(1, 5):
            weight.fill_(step)
            store.save(step, {"weight": weight})
            weight.fill_(-1)
            newest = store.newest()
            if newest is None or not bool((newest.load()["weight"] == step).all()):
                return Seen("FAILED", f"checkpoint {step} does not hold what was saved")
    return Seen("passed", "4 checkpoints hold what was saved")


def order(place: CheckedDevice) -> Seen:
    """Give the samples in the order that the CPU gives them."""

    def seen(at: CheckedDevice, name: str) -> object:
        with at.run(name) as run:
            source = run.data(small.make_test_examples(), batch_size=10, shuffle=True)
            batches = [batch[0][:, 0] for _ in run.epochs(2) for batch in run.batches(source)]
            return torch.cat(batches).tolist()

    here, there = seen(place, "order"), seen(place.on("cpu"), "order-cpu")
    return Seen("passed" if here == there else "FAILED", "2 epochs beside the CPU's order")


def ownership(place: CheckedDevice) -> Seen:
    """Update one of two learners; nothing of the other moves."""
    with place.run("owners") as run:
        first, second = (
            run.learner(make_test_network(), small.adamw, name=name) for name in ("first", "second")
        )
        before = weight_copies_on_cpu(second.module)
        batch = place.batch()
        for _ in run.steps(3):
            first.update(
                lambda batch: (
                    per_example_loss_function(first)(batch) + per_example_loss_function(second)(batch)
                ),
                batch,
            )
        if any(each.grad is not None for each in second.module.parameters()):
            return Seen("FAILED", "the other learner has got gradients")
        return compare_tensors(before, weight_copies_on_cpu(second.module), "the other learner")


def truthful_metrics(place: CheckedDevice) -> Seen:
    """Evaluate over batches of two sizes."""
    with place.run("metrics") as run:
        net = run.learner(make_test_network(), small.adamw)
        sources = [run.data(small.make_test_examples(), batch_size=size) for size in (7, small.NUM_ROWS)]
        found = [
            float(net.evaluate(lambda batch: torch.eq(net(batch[0]).argmax(1), batch[1]).float(), source))
            for source in sources
        ]
    says = f"batches of 7 and of 96: {abs(found[0] - found[1]):.1g} apart"
    return Seen("passed" if math.isclose(*found, rel_tol=1e-12) else "FAILED", says)


def watched_is_plain(place: CheckedDevice) -> Seen:
    """Train with the doctor and a look at the layers, and without."""
    watched = train_for_epochs(place, "watched", doctor=True, watch_layers=2)
    return compare_tensors(
        watched, train_for_epochs(place, "plainly", doctor=False, watch_layers=0), "watched and not"
    )


def no_hidden_sync(place: CheckedDevice) -> Seen:
    """Have torch raise where a step makes the host wait."""
    if not is_async_device(place.device):
        why = "results are at hand" if is_cpu_device(place.device) else "torch can't tell of waiting"
        return Seen("does not apply", f"{place.device.type}: {why}")
    batch = place.batch()
    for name, options in SYNC_KINDS.items():
        with place.run(f"sync-{name}") as run:
            net = run.learner(make_test_network(), small.adamw, **options)
            for step in run.steps(6):
                torch.cuda.set_sync_debug_mode("error" if step > 1 else "default")
                try:
                    net.update(per_example_loss_function(net), batch)
                except RuntimeError as error:
                    return Seen("FAILED", f"{name}: {error}")
                finally:
                    torch.cuda.set_sync_debug_mode("default")
    return Seen("passed", f"none in {len(SYNC_KINDS)} kinds of updates")


def overflow(place: CheckedDevice) -> Seen:
    """Let a float16 gradient overflow: the update is left out, and the scale halved."""
    with place.run("overflow", nonfinite="skip") as run:
        net = run.learner(nn.Linear(small.WIDTH, small.CLASSES), small.adamw, precision="fp16-mixed")
        batch = place.batch()
        before = weight_copies_on_cpu(net.module)
        for _ in run.steps(1):
            skipped = net.update(lambda batch: per_example_loss_function(net)(batch) * 1e30, batch).skipped
        if not bool(skipped):
            return Seen("FAILED", "an overflow was not skipped")
        return compare_tensors(before, weight_copies_on_cpu(net.module), "weights after an overflow")


def beside_the_cpu(place: CheckedDevice) -> Seen:
    """Train on the device and on the CPU: another order of sums, and nothing else."""
    if is_cpu_device(place.device):
        return Seen("does not apply", "this is the CPU")
    there = train_for_epochs(place.on("cpu"), "there", dropout=0)
    return compare_tensors(train_for_epochs(place, "here", dropout=0), there, "12 updates", within=1e-3)


def speed(place: CheckedDevice) -> Seen:
    """Time updates and the loop by hand, in turns."""
    batch, module = place.batch(), make_test_network().to(place.device)
    optimizer = small.adamw(module.parameters(), fused=True)
    with place.run("speed", doctor=False, watch_layers=0) as run:
        net = run.learner(make_test_network(), small.adamw)
        loss = small.per_example_loss_function(net)
        steps = (lambda: net.update(loss, batch), lambda: small.step_by_hand(module, optimizer, batch))
        for _ in run.steps(1):
            rounds = [[_time_steps(place, step) for step in steps] for _ in range(ROUNDS + 1)]
    ours, theirs = (statistics.median(taken) * 1e6 for taken in zip(*rounds[1:], strict=True))
    return Seen("measured", f"{ours:.0f} µs an update, {theirs:.0f} µs by hand ({ours / theirs:.2f} times)")


def _time_steps(place: CheckedDevice, step: Callable[[], object]) -> float:
    synchronize_device(place.device)
    began = time.perf_counter()
    for _ in range(STEPS):
        step()
    synchronize_device(place.device)
    return (time.perf_counter() - began) / STEPS


def memory(place: CheckedDevice) -> Seen:
    """Say how much memory the tensors of these checks have taken at most."""
    most = peak_device_bytes(place.device)
    if most is None:
        return Seen("does not apply", f"{place.device.type} does not count what tensors take")
    return Seen("measured", f"{most / 2**20:.1f} MiB at most in these checks")


def all_cards(place: CheckedDevice) -> Seen:
    """Train on each other card: flags and lines arrive from it, too."""
    others = [index for index in range(num_cuda_devices()) if index != place.device.index]
    if is_cpu_device(place.device) or not others:
        return Seen("does not apply", "at most one of this kind")
    expected = train_for_epochs(place, "card", clip=None)
    for index in others:
        card = place.on(torch.device(place.device.type, index))
        seen = compare_tensors(expected, train_for_epochs(card, f"card-{index}", clip=None), str(card.device))
        if seen.outcome == "FAILED":
            return seen
    return Seen("passed", f"{len(others) + 1} cards: the same bits")


def several_ranks(place: CheckedDevice) -> Seen:
    """Train in two processes, on two cards (NCCL) or on the CPU (gloo), and in one."""
    if not is_cpu_device(place.device) and num_cuda_devices() < 2:
        return Seen("does not apply", "NCCL needs two cards")
    words = ["launch", "-n", "2", "--logs", str(place.folder / "logs"), small.__file__, str(place.folder)]
    command = [sys.executable, "-m", "truestep", *words, place.device.type]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        last = (done.stderr.splitlines() or ["-"])[-1]
        return Seen("FAILED", f"two processes ended with {done.returncode}: {last}")
    found = torch.load(place.folder / "ranks.pt", weights_only=True)
    return compare_tensors(train_for_epochs(place, "alone", dropout=0), found, "two and one", within=1e-4)


CHECKS: dict[str, Callable[[CheckedDevice], Seen]] = {
    "Split": split,
    "Plain": plain,
    "Resume": resume,
    "Never empty": never_empty,
    "Order": order,
    "Ownership": ownership,
    "Truthful metrics": truthful_metrics,
    "Watched is plain": watched_is_plain,
    "No hidden sync": no_hidden_sync,
    "overflow of float16": overflow,
    "beside the CPU": beside_the_cpu,
    "all cards": all_cards,
    "several processes": several_ranks,
    "speed": speed,
    "memory": memory,
}
