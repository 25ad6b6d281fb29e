# SPDX-License-Identifier: Apache-2.0
"""Each law once, on a device: what the property tests hold on a CPU over drawn programs."""

import math
from typing import Any

import torch
from torch import Tensor, nn

import truestep as ts
from truestep.core.accelerator import is_host, runs_ahead
from truestep.selfcheck import training as small
from truestep.selfcheck.report import Seen, passed_if
from truestep.selfcheck.training import CheckedDevice, differ, losses, new_module, on_host, train


def _same(difference: str, what: str) -> Seen:
    return Seen("FAILED", f"{what}: {difference}") if difference else Seen("passed", f"{what}: the same bits")


def split(place: CheckedDevice) -> Seen:
    """Give the gradient of a batch whole and in parts of 7; it may differ by the law's bound."""
    batch = place.batch()
    gradients = [_gradient(place, f"split-{size}", batch, size) for size in (None, 7)]
    shares = _sizes_of_shares(place, batch)
    parts, unit = -(-small.NUM_ROWS // 7), 2.0**-24
    far = max(
        float((a - b).norm() / (16 * math.sqrt(parts) * unit * size.norm()))
        for a, b, size in zip(*gradients, shares, strict=True)
    )
    return passed_if(far <= 1, f"at {far:.3f} of the bound between {parts} parts and one")


def _gradient(place: CheckedDevice, name: str, batch: list[Tensor], micro_batch: int | None) -> list[Tensor]:
    """Return the gradient that the optimizer got."""
    got: list[Tensor] = []
    with place.run(name) as run:
        net = run.learner(
            new_module(dropout=0), lambda p: torch.optim.SGD(p, lr=1e-3), micro_batch=micro_batch
        )
        for _ in run.steps(1):
            net.optimizers[0].register_step_pre_hook(lambda *_: got.extend(_gradients(net.module)))
            net.update(losses(net), batch)
    return got


def _gradients(module: nn.Module) -> list[Tensor]:
    return [each.grad.detach().cpu().double() for each in module.parameters() if each.grad is not None]


def _sizes_of_shares(place: CheckedDevice, batch: list[Tensor]) -> list[Tensor]:
    """Return Σᵢ|gᵢ|, gᵢ being example i's share of the gradient."""
    module = new_module(dropout=0).to(place.device)
    sums = [torch.zeros(each.shape, dtype=torch.float64) for each in module.parameters()]
    for each in losses(module)(batch).unbind():
        gradients = torch.autograd.grad(each / small.NUM_ROWS, [*module.parameters()], retain_graph=True)
        for total, gradient in zip(sums, gradients, strict=True):
            total += gradient.abs().cpu().double()
    return sums


def plain(place: CheckedDevice) -> Seen:
    """End where the loop by hand ends, with the same flags of the optimizer."""
    batches = [*zip(*(torch.split(each, small.BATCH) for each in place.batch()), strict=True)]
    with place.run("plain") as run:
        net = run.learner(new_module(dropout=0), small.adamw)
        for _, batch in zip(run.steps(len(batches)), batches, strict=True):
            net.update(losses(net), batch)
        fused = net.optimizers[0].defaults["fused"]
        found = on_host(net.module)
    module = new_module(dropout=0).to(place.device)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2, fused=fused)
    for batch in batches:
        small.step_by_hand(module, optimizer, batch)
    return _same(differ(on_host(module), found), "6 updates and the loop by hand")


def resume(place: CheckedDevice) -> Seen:
    """Stop after one of two epochs and go on."""
    whole = train(place, "whole")
    train(place, "parts", num_epochs=1)
    return _same(differ(whole, train(place, "parts")), "stopped after one epoch and never stopped")


def never_empty(place: CheckedDevice) -> Seen:
    """Save, and write to the weights at once: the checkpoint has what they were."""
    from truestep.checkpoints import CheckpointStore

    weight = torch.zeros(1 << 20, device=place.device)
    with CheckpointStore(place.folder / "store") as store:
        for step in range(1, 5):
            weight.fill_(step)
            store.save(step, {"weight": weight})
            weight.fill_(-1)
            newest = store.newest()
            if newest is None or not bool((newest.load()["weight"] == step).all()):
                return Seen("FAILED", f"checkpoint {step} does not hold what was saved")
    return Seen("passed", "4 checkpoints are whole; later work did not overtake their copies")


def order(place: CheckedDevice) -> Seen:
    """Give the samples in the order that the CPU gives them."""

    def seen(at: CheckedDevice, name: str) -> list[float]:
        with at.run(name) as run:
            source = run.data(small.examples(), batch_size=10, shuffle=True)
            return [
                value
                for _ in run.epochs(2)
                for batch in run.batches(source)
                for value in batch[0][:, 0].tolist()
            ]

    here, there = seen(place, "order"), seen(place.on("cpu"), "order-cpu")
    return passed_if(here == there, f"{len(here)} samples beside the CPU's order")


def ownership(place: CheckedDevice) -> Seen:
    """Update one of two learners; nothing of the other moves."""
    with place.run("owners") as run:
        first, second = (run.learner(new_module(), small.adamw, name=name) for name in ("first", "second"))
        before = on_host(second.module)
        batch = place.batch()
        for _ in run.steps(3):
            first.update(lambda batch: losses(first)(batch) + losses(second)(batch), batch)
        gradients = any(each.grad is not None for each in second.module.parameters())
        return _same(differ(before, on_host(second.module)) or "gradients" * gradients, "the other learner")


def truthful_metrics(place: CheckedDevice) -> Seen:
    """Evaluate over batches of two sizes."""
    with place.run("metrics") as run:
        net = run.learner(new_module(), small.adamw)

        def correct(batch: list[Tensor]) -> Tensor:
            return torch.eq(net(batch[0]).argmax(1), batch[1]).float()

        sizes = (7, small.NUM_ROWS)
        found = [float(net.evaluate(correct, run.data(small.examples(), batch_size=each))) for each in sizes]
    near = math.isclose(*found, rel_tol=1e-12)
    return passed_if(near, f"{found[0]!r} and {found[1]!r} correct in batches of 7 and 96")


def watched_is_plain(place: CheckedDevice) -> Seen:
    """Train with the doctor and a look at the layers, and without."""
    watched = train(place, "watched", doctor=True, watch_layers=2)
    return _same(differ(watched, train(place, "plainly", doctor=False, watch_layers=0)), "watched and not")


def no_hidden_sync(place: CheckedDevice) -> Seen:
    """Have torch raise where a step makes the host wait."""
    if not runs_ahead(place.device):
        why = "results are at hand" if is_host(place.device) else "torch can't tell of synchronisations there"
        return Seen("does not apply", f"{place.device.type}: {why}")
    kinds: dict[str, dict[str, Any]] = {
        "plain": {},
        "clip": {"clip": ts.ClipNorm(1.0)},
        "split": {"micro_batch": 7},
        "average": {"ema": ts.EMA()},
    }
    kinds |= {precision: {"precision": precision} for precision in ("bf16-mixed", "fp16-mixed")}
    batch = place.batch()
    for name, options in kinds.items():
        with place.run(f"sync-{name}") as run:
            net = run.learner(new_module(), small.adamw, **options)
            for step in run.steps(6):
                torch.cuda.set_sync_debug_mode("error" if step > 1 else "default")
                try:
                    net.update(losses(net), batch)
                except RuntimeError as error:
                    return Seen("FAILED", f"{name}: {error}")
                finally:
                    torch.cuda.set_sync_debug_mode("default")
    return Seen("passed", f"none in updates of {len(kinds)} kinds: {', '.join(kinds)}")


def overflow(place: CheckedDevice) -> Seen:
    """Let a float16 gradient overflow: the update is left out, and the scale halved."""
    with place.run("overflow", nonfinite="skip") as run:
        net = run.learner(nn.Linear(small.WIDTH, small.CLASSES), small.adamw, precision="fp16-mixed")
        batch = place.batch()
        before = on_host(net.module)
        for _ in run.steps(1):
            skipped = net.update(lambda batch: losses(net)(batch) * 1e30, batch).skipped
        difference = differ(before, on_host(net.module))
        return _same(difference or "it was not skipped" * (not bool(skipped)), "weights after an overflow")


def beside_the_cpu(place: CheckedDevice) -> Seen:
    """Train on the device and on the CPU: another order of sums, and nothing else."""
    if is_host(place.device):
        return Seen("does not apply", "this is the CPU")
    far = small.distance(train(place, "here", dropout=0), train(place.on("cpu"), "there", dropout=0))
    return passed_if(far < 1e-3, f"weights after 12 updates: largest difference {far:.2g}")
