# SPDX-License-Identifier: Apache-2.0
"""One trunk with two heads: names a turned handwritten digit, and draws it upright.

The losses go backward one after another, so that one head's activations are kept at a time; the trunk is computed for each. Logged
is the peak memory of such a step and of the usual one, which sums the losses. --no-one-by-one trains by the sum: to rounding, the
updates are the same.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import truestep as ts
from truestep.model.summaries.memory import LiveStorageBytes
from truestep.recipes import digits

DRAWING = 20.0  # weight of its mean squared error beside the cross-entropy
Batch = tuple[Tensor, Tensor, Tensor]  # turned images, images, labels


@dataclass(frozen=True)
class Config:
    """What can be chosen."""

    epochs: int = 20  # passes over the training images
    batch_size: int = 128  # images per update
    lr: float = 2e-3  # at the start; it falls to 0
    width: int = 32  # channels of the heads
    layers: int = 4  # of each head
    one_by_one: bool = True  # go backward once a loss
    micro_batch: int | None = None  # most images computed at once; the update is the same
    threads: int = 1  # of torch on a CPU


def naming_loss(net: Any, features: Tensor, batch: Batch) -> Tensor:
    """Return the loss of the digits' names, one per example."""
    return F.cross_entropy(net.label(features), batch[2], reduction="none")


def drawing_loss(net: Any, features: Tensor, batch: Batch) -> Tensor:
    """Return the loss of the upright images, one per example."""
    difference: Tensor = net.image(features) - batch[1]
    return DRAWING * difference.square().mean((1, 2, 3))


def naming_and_drawing_loss(net: Any, batch: Batch) -> Tensor:
    """Return the sum of both; the trunk is computed once."""
    features = net.trunk(batch[0])
    return naming_loss(net, features, batch) + drawing_loss(net, features, batch)


def naming_then_drawing_loss(net: Any, batch: Batch) -> Iterator[Tensor]:
    """Give one loss, and the other when the first has gone backward."""
    yield naming_loss(net, net.trunk(batch[0]), batch)
    yield drawing_loss(net, net.trunk(batch[0]), batch)


@torch.no_grad()
def digit_drawings(net: Any, turned: Tensor, upright: Tensor) -> ts.Image:
    """Return three rows: what the network is given, what it draws, what it should."""
    rows = torch.cat([turned, net.image(net.trunk(turned)), upright.to(turned)])
    return ts.Image(rows, columns=len(turned))


def update_both_heads(net: Any, batch: Batch, config: Config) -> None:
    """Make one update of both losses, summed over heads and divided by the number of examples."""
    if not config.one_by_one:
        net.update(lambda part: naming_and_drawing_loss(net, part), batch)
        return
    size = config.micro_batch or len(batch[0])
    with net.accumulating(weight=len(batch[0])) as made:
        for part in zip(*(torch.split(each, size) for each in batch), strict=True):
            for loss in naming_then_drawing_loss(net, part):
                made.backward(loss)


def digit_evaluation_metrics(net: Any, batch: Batch) -> dict[str, Tensor]:
    """Return whether each digit is named rightly, and how far each drawing is off."""
    features = net.trunk(batch[0])
    right = (net.label(features).argmax(1) == batch[2]).float()
    return {"accuracy": right, "drawing_error": drawing_loss(net, features, batch) / DRAWING}


def train(run: Any, config: Config) -> None:
    """Train the network; log after each epoch how many test images it names, and how far its drawings are off."""
    torch.set_num_threads(config.threads)
    (images, labels), (test_images, test_labels) = digits.load_digit_images()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        turned = digits.augment_digits(test_images, angle=0.6)
    test = run.data((turned, test_images, test_labels), batch_size=1024)
    train = run.data((images, labels), batch_size=config.batch_size, shuffle=True)
    total = config.epochs * len(train)
    made = DigitHeads(config.width, config.layers)
    first = (turned[: config.batch_size], test_images[: config.batch_size], test_labels[: config.batch_size])
    together, in_turns = (
        peak_memory_of_losses_mib(made, lambda net: [naming_and_drawing_loss(net, first)]),
        peak_memory_of_losses_mib(made, lambda net: naming_then_drawing_loss(net, first)),
    )
    net = run.learner(
        made,
        lambda p: torch.optim.Adam(p, lr=config.lr),
        schedule=lambda o: ts.warmup_cosine(o, warmup_steps=0, total_steps=total),
        micro_batch=config.micro_batch,
    )
    for epoch in run.epochs(config.epochs):
        if epoch == 0:
            run.log(peak_mib_together=together, peak_mib_one_by_one=in_turns)
        for upright, names in run.batches(train):
            # moved once, for both heads
            update_both_heads(net, (digits.augment_digits(upright, angle=0.6), upright, names), config)
        run.log(**net.evaluate(lambda batch: digit_evaluation_metrics(net, batch), test))
        if epoch + 1 == config.epochs:
            run.log(turned_drawn_upright=digit_drawings(made, turned[:16].to(run.device), test_images[:16]))


class DigitHeads(nn.Module):
    """Images (batch, 1, 8, 8) to features by `trunk`; those to scores of ten digits by `label`, to images by `image`."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.trunk = nn.Sequential(*digits.digits_convolution_block(1, 16))
        self.label = digit_head_network(
            width, layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * width, 10)
        )
        self.image = digit_head_network(width, layers, nn.Conv2d(width, 1, kernel_size=3, padding=1))


def digit_head_network(width: int, layers: int, *last: nn.Module) -> nn.Sequential:
    """Return convolutions on the trunk's features."""
    inner = (layer for _ in range(layers - 1) for layer in digits.digits_convolution_block(width, width))
    return nn.Sequential(*digits.digits_convolution_block(16, width), *inner, *last)


def peak_memory_of_losses_mib(net: nn.Module, losses: Callable[[Any], Iterable[Tensor]]) -> float:
    """Return the most that lives at one time while losses are computed and go backward, each before the next is computed.

    On a copy of the network, whose weights and gradients are left out.
    """
    made = copy.deepcopy(net)
    for parameter in made.parameters():
        parameter.grad = torch.zeros_like(parameter)
    with LiveStorageBytes() as living:
        for loss in losses(made):
            torch.autograd.backward(loss.mean())
            del loss
    return float(living.peak) / 2**20
