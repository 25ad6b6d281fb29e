# SPDX-License-Identifier: Apache-2.0
"""Trainings that end at the same weights on one process and on several; run as a program, each rank goes through all of them.

`python over_ranks.py FOLDER STRATEGY [NAME...]` writes FOLDER/NAME.pt from rank 0.
"""

import math
import os
import shutil
import sys
import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import truestep as ts
from truestep.engine.processes.shards import gather_over_ranks
from truestep.engine.processes.world import World
from truestep.engine.strategies import totals
from truestep.run import process_group_setup as starting

DOUBLE = torch.float64


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


class Layered(nn.Module):
    """Leaves a layer out where no row of its batch asks for it, so that ranks use different parameters; one nobody ever uses."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.first, self.extra, self.last = nn.Linear(6, 9), nn.Linear(6, 9), nn.Linear(9, 5)
        self.norm = nn.LayerNorm(9)
        self.unused = nn.Linear(2, 2)

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        wanted = tokens[:, :1, None] % 3 == 0
        values = self.first(hidden)
        if wanted.any():
            values = values + self.extra(hidden) * wanted
        return self.last(torch.tanh(self.norm(values)))


def tokens(run, number, batch_size):
    draw = generator(number)
    words, labels = (torch.randint(0, high, (number, 4), generator=draw) for high in (7, 5))
    weights = torch.rand(number, 4, generator=draw, dtype=DOUBLE) * (
        torch.rand(number, 4, generator=draw) > 0.4
    )
    return run.data((words, labels, weights), batch_size=batch_size, shuffle=True)


def weighted_by_token(net):
    """Return the loss of `tokens`, with noise drawn in it."""

    def loss(batch):
        words, labels, weights = batch
        scores = net(words)
        values = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none").view(len(words), 4)
        noisy = values * (1 + 0.1 * ts.randn(len(words), 4, dtype=DOUBLE, device=words.device))
        return ts.weighted(noisy, weights, right=(scores.argmax(-1) == labels).double())

    return loss


def token_weights(run, *, number=29, batch_size=8, micro_batch=3):
    """Token weights with zeros, ragged micro-batches, clip, layer drop, draws; and 29 = 3 · 8 + 5."""
    net = run.learner(
        Layered(),
        lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9),
        clip=ts.ClipNorm(0.5),
        micro_batch=micro_batch,
        ema=ts.EMA(decay=0.9),
    )
    data = tokens(run, number, batch_size)

    loss = weighted_by_token(net)

    for _ in run.epochs(2):
        for batch in run.batches(data):
            update = net.update(loss, batch)
            run.state.setdefault("seen", []).append([float(update.loss), float(update.metrics["right"])])
    with net.averaged():
        average = [parameter.detach().clone() for parameter in net.parameters()]
    return {"weights": list(net.parameters()), "average": average, "seen": torch.tensor(run.state["seen"])}


def few_examples(run):
    """Last batches of one example: most ranks have none of it, at once and in micro-batches."""
    return token_weights(run, number=9, batch_size=4, micro_batch=None)


def penalty(run):
    """Two learners, a gradient penalty with draws, noise drawn in the loss, spectral norm, batch statistics."""
    spectral = torch.nn.utils.parametrizations.spectral_norm
    critic_net = nn.Sequential(spectral(nn.Linear(3, 8)), nn.Tanh(), nn.Linear(8, 1))
    maker = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    critic = run.learner(
        critic_net, lambda p: torch.optim.SGD(p, lr=0.05), name="critic", clip=ts.ClipNorm(1.0)
    )
    generator_ = run.learner(maker, lambda p: torch.optim.SGD(p, lr=0.05), name="generator")
    data = run.data(
        torch.randn(24, 3, generator=generator(1), dtype=DOUBLE), batch_size=7, shuffle=True, drop_last=True
    )

    def critic_loss(real):
        fake = generator_(ts.randn(len(real), 2, dtype=DOUBLE, device=real.device)).detach()
        between = ts.gradient_penalty(critic, real, fake)
        return critic(fake).squeeze(1) - critic(real).squeeze(1) + 10 * between

    def generator_loss(real):
        return -critic(generator_(ts.randn(len(real), 2, dtype=DOUBLE, device=real.device))).squeeze(1)

    for _ in run.epochs(2):
        for batch in run.batches(data):
            critic.update(critic_loss, batch)
            generator_.update(generator_loss, batch)
    modules = (critic.module, generator_.module)
    return {"weights": [tensor for module in modules for tensor in module.state_dict().values()]}


class Counted(nn.Module):
    """Convolutions with batch statistics, and a buffer that counts the examples it has seen."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4), nn.Tanh(), nn.Conv2d(4, 1, 2))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, images):
        self.calls += 1
        return self.layers(images).flatten(1)


def statistics(run):
    """Batch statistics where the last batch is one image: a rank without any takes part, and counts nothing."""
    module = Counted()
    module.layers[1].momentum = None  # statistics of all batches alike
    net = run.learner(module, lambda p: torch.optim.SGD(p, lr=0.2), clip=ts.ClipNorm(1.0))
    data = run.data(torch.randn(9, 1, 5, 5, generator=generator(6), dtype=DOUBLE), batch_size=4)

    def loss(images):
        noisy = images + 0.1 * ts.randn(images.shape, dtype=DOUBLE, device=images.device)
        return ts.weighted(net(noisy).square().mean(1), largest=noisy.flatten(1).amax(1))

    for _ in run.epochs(2):
        for batch in run.batches(data):
            net.update(loss, batch)
    return {"weights": list(net.module.state_dict().values())}


def unequal_parts(run):
    """Two ranks, of which one has two micro-batches and the other one: the second's statistics are of one rank's rows alone."""
    net = run.learner(Counted(), lambda p: torch.optim.SGD(p, lr=0.2))
    data = run.data(torch.randn(10, 1, 5, 5, generator=generator(6), dtype=DOUBLE), batch_size=5)
    warnings.simplefilter("ignore")  # of batch statistics
    for _ in run.epochs(1):
        for batch in run.batches(data):
            if run.world_size == 1:
                batch, sizes = batch[[0, 1, 3, 4, 2]], [4, 1]
            else:
                sizes = 2
            net.update(lambda images: net(images).square().mean(1), batch, micro_batch=sizes)
    return {"weights": list(net.module.state_dict().values())}


class Blocks(nn.Module):
    """Layers in a list, which are divided one by one; what is around them is divided together."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 6)) for _ in range(3)
        )
        self.norm, self.last = nn.LayerNorm(6), nn.Linear(6, 5)

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        for layer in self.layers:
            more = layer(hidden)
            more += hidden  # in place: it is a view of what the layer's product returned
            hidden = more
        return self.last(self.norm(hidden))


def blocks(run, *, number=21, batch_size=8, epochs=2):
    """Weights in units, ragged micro-batches, ranks without examples, clip, average, draws, evaluation."""
    net = run.learner(
        Blocks(),
        lambda p: torch.optim.Adam(p, lr=0.02, eps=1e-3),
        clip=ts.ClipNorm(0.5),
        micro_batch=3,
        ema=ts.EMA(decay=0.9),
    )
    data = tokens(run, number, batch_size)

    loss = weighted_by_token(net)

    for _ in run.epochs(epochs):
        for batch in run.batches(data):
            update = net.update(loss, batch)
            norm = float(update.gradient_norm)
            run.state.setdefault("seen", []).append(
                [float(update.loss), float(update.metrics["right"]), norm]
            )
        measured = net.evaluate(lambda batch: net(batch[0]).square().mean((1, 2)), data)
        run.state["seen"].append([measured, 0.0, 0.0])
    with net.averaged():
        average = [gather_over_ranks(parameter.detach(), keep=True).clone() for parameter in net.parameters()]
    return {"weights": list(net.parameters()), "average": average, "seen": torch.tensor(run.state["seen"])}


def half(run):
    """The first of two epochs; what is kept then is copied, too."""
    return blocks(run, epochs=1)


def rest(run):
    """Both epochs, in the directory where the first was left."""
    return blocks(run)


def mixed(run, precision="bf16-mixed"):
    """Weights in float32 that are gathered in half precision."""
    net = run.learner(
        Blocks(), lambda p: torch.optim.SGD(p, lr=0.1), precision=precision, clip=ts.ClipNorm(0.5)
    )
    data = tokens(run, 16, 8)
    for _ in run.epochs(1):
        for words, labels, _ in run.batches(data):
            net.update(
                lambda pair: F.cross_entropy(net(pair[0]).mT, pair[1], reduction="none").mean(1),
                (words, labels),
            )
    return {"weights": list(net.parameters())}


def mixed_fp16(run):
    """In float16 the loss is scaled, and an overflow in one rank's part is everybody's."""
    return mixed(run, "fp16-mixed")


def dropped(run):
    """A layer that one rank leaves out."""
    net = run.learner(
        nn.Sequential(*(nn.Linear(4, 4) for _ in range(3))), lambda p: torch.optim.SGD(p, lr=0.1)
    )
    data = run.data(torch.randn(8, 4, dtype=DOUBLE), batch_size=4)
    for _ in run.epochs(1):
        for batch in run.batches(data):
            net.update(lambda rows: net.module[1 + run.rank](net.module[0](rows)).square().mean(1), batch)
    return {"weights": list(net.parameters())}


class Experts(nn.Module):
    """Experts of unlike sizes, of which `choose` names some; each is a unit of its own."""

    def __init__(self, choose):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 4)) for width in (2, 7, 3)
        )
        self.choose = choose

    def forward(self, rows):
        hidden = self.first(rows)
        for number in self.choose():
            hidden = hidden + self.experts[number](hidden)
        return hidden


def of_experts(run, choose, *, evaluates=False):
    net = run.learner(Experts(choose), lambda p: torch.optim.SGD(p, lr=0.1))
    data = run.data(torch.randn(16, 4, generator=generator(6), dtype=DOUBLE), batch_size=4)
    for _ in run.epochs(1):
        for batch in run.batches(data):
            if evaluates:
                net.evaluate(lambda rows: net(rows).square().mean(1), data)
            net.update(lambda rows: net(rows).square().mean(1), batch, micro_batch=1)
    return {"weights": list(net.parameters())}


def experts(run):
    """Experts that all ranks choose alike: drawn for the whole batch."""
    return of_experts(run, lambda: [int(ts.rand(()) * 3), *range(int(ts.rand(()) * 3))])


def experts_apart(run):
    """An expert that each rank chooses for itself, of another size than another rank's."""
    return of_experts(run, lambda: [run.rank])


def experts_more(run):
    """An expert that one rank calls, where the other is done."""
    return of_experts(run, lambda: [0, 1, 2][: 2 + run.rank])


def experts_fewer_later(run):
    """The same, from the third batch on."""
    return of_experts(run, lambda: [0, 1][: 2 - (run.rank and run.step > 2)])


def experts_measured(run):
    """The same in an evaluation."""
    return of_experts(run, lambda: [1][: int(torch.is_grad_enabled() or run.rank)], evaluates=True)


class DetachedLayers(nn.Module):
    """Three layers of unlike sizes beside another; `choose` names those whose output is detached."""

    def __init__(self, choose):
        super().__init__()
        sizes = (4, 7, 5, 4)
        self.layers = nn.ModuleList(map(nn.Linear, sizes, sizes[1:]))
        self.beside = nn.Linear(4, 4)
        self.choose = choose

    def forward(self, rows):
        beside = self.beside(rows)
        for number, layer in enumerate(self.layers):
            rows = layer(rows).tanh()
            rows = rows.detach() if number in self.choose() else rows
        return rows + beside


def of_detached(run, choose):
    net = run.learner(DetachedLayers(choose), lambda p: torch.optim.SGD(p, lr=0.1))
    data = run.data(torch.randn(16, 4, generator=generator(6), dtype=DOUBLE), batch_size=4)
    for _ in run.epochs(1):
        for batch in run.batches(data):
            net.update(lambda rows: net(rows).square().mean(1), batch)
    return {"weights": list(net.parameters())}


def detached(run):
    """A layer whose output is detached for some updates, on all ranks alike."""
    return of_detached(run, lambda: [run.step % 3 - 1])


def detached_apart(run):
    """A layer whose output one rank alone detaches."""
    return of_detached(run, lambda: [0] if run.rank else [])


def detached_at_last(run):
    """The last layer's output, which another layer's is added to."""
    return of_detached(run, lambda: [2] if run.rank else [])


def detached_later(run):
    """Likewise the middle layer, on the other rank and later on."""
    return of_detached(run, lambda: [1] if run.rank == 0 and run.step > 2 else [])


def adversaries(run):
    """Two learners, spectral norm, batch statistics, one example a rank at last."""
    spectral = torch.nn.utils.parametrizations.spectral_norm
    critic_net = nn.Sequential(spectral(nn.Linear(3, 8)), nn.Tanh(), nn.Linear(8, 1))
    maker = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    critic = run.learner(critic_net, lambda p: torch.optim.SGD(p, lr=0.05), name="critic")
    maker = run.learner(maker, lambda p: torch.optim.SGD(p, lr=0.05), name="generator")
    data = run.data(torch.randn(24, 3, generator=generator(1), dtype=DOUBLE), batch_size=7, shuffle=True)

    def critic_loss(real):
        fake = maker(ts.randn(len(real), 2, dtype=DOUBLE, device=real.device)).detach()
        return critic(fake).squeeze(1) - critic(real).squeeze(1)

    for _ in run.epochs(2):
        for batch in run.batches(data):
            critic.update(critic_loss, batch)
            maker.update(
                lambda real: (
                    -critic(maker(ts.randn(len(real), 2, dtype=DOUBLE, device=real.device))).squeeze(1)
                ),
                batch,
            )
    modules = (critic.module, maker.module)
    return {"weights": [tensor for module in modules for tensor in module.state_dict().values()]}


def values_per_token(run):
    """Several values an example, and ranks without any."""
    net = run.learner(Layered(), lambda p: torch.optim.SGD(p, lr=0.3))
    data = tokens(run, 9, 4)
    for _ in run.epochs(1):
        for words, labels, _ in run.batches(data):
            net.update(
                lambda pair: ts.weighted(F.cross_entropy(net(pair[0]).mT, pair[1], reduction="none")),
                (words, labels),
            )
    return {"weights": list(net.parameters())}


def shrinking(run):
    """Memory runs out on rank 0 alone, which goes on in smaller parts."""
    net = run.learner(nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=0.2), micro_batch="auto")
    data = run.data(torch.randn(21, 4, generator=generator(7), dtype=DOUBLE), batch_size=8)

    def loss(rows):
        if run.is_main and len(rows) > 2:
            raise torch.OutOfMemoryError("no memory for more than two rows")
        return net(rows).squeeze(1).square()

    for _ in run.epochs(1):
        for batch in run.batches(data):
            net.update(loss, batch)
    return {"weights": list(net.parameters())}


def contrast(run):
    """A loss of the whole batch: every example is compared with all others, wherever they are."""
    net = run.learner(nn.Linear(4, 3), lambda p: torch.optim.SGD(p, lr=0.5))
    data = run.data(
        torch.randn(21, 2, 4, generator=generator(2), dtype=DOUBLE),
        batch_size=5,
        shuffle=True,
        drop_last=True,
    )

    def loss(pairs):
        images, texts = net(pairs[:, 0]), net(pairs[:, 1])
        others, first = ts.gather(texts, with_first=True)
        return F.cross_entropy(
            images @ others.T, first + torch.arange(len(images), device=images.device), reduction="none"
        )

    for _ in run.epochs(2):
        for batch in run.batches(data):
            net.update(loss, batch, decomposable=False)
    return {"weights": list(net.parameters())}


def searched(run):
    """LBFGS: every evaluation is summed over the ranks, so all search along the same line."""
    net = run.learner(nn.Linear(4, 1), lambda p: torch.optim.LBFGS(p, line_search_fn="strong_wolfe"))
    data = run.data(torch.randn(20, 5, generator=generator(3), dtype=DOUBLE), batch_size=10)
    for _ in run.epochs(1):
        for batch in run.batches(data):
            net.update(lambda rows: (net(rows[:, :4]).squeeze(1) - rows[:, 4]).square().square(), batch)
    return {"weights": list(net.parameters())}


def one_after_another(run):
    """Losses in a block, divided by what the caller says, and by their number, which vectors have and means are given.

    The last batch of each epoch leaves ranks without a row: an empty part, a mean over none, no part at all. Each row has noise.
    """
    net = run.learner(nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=0.2), clip=ts.ClipValue(0.1))
    data = run.data(torch.randn(11, 4, generator=generator(4), dtype=DOUBLE), batch_size=5)
    for epoch in run.epochs(4):
        for number, batch in enumerate(run.batches(data)):
            form = (number + epoch) % 4
            total = 5.0 if number < 2 else 1.0
            with net.accumulating(weight=total if form == 1 else None) as update:
                for part in batch.split(2) if form else [batch[i : i + 2] for i in range(0, len(batch), 2)]:
                    noisy = part * (1 + 0.3 * ts.rand(len(part), 1, dtype=DOUBLE, device=part.device))
                    values = net(noisy).squeeze(1).square()
                    if form == 2:
                        update.backward(values.mean(), weight=len(values))
                    else:
                        update.backward(values.sum() if form == 1 else values)
    return {"weights": list(net.parameters())}


def hooked(run):
    """Hooks on parameters that do more than multiply; token weights, ragged parts, ranks without examples, a layer left out."""
    module = Layered()
    module.first.weight.register_hook(lambda gradient: gradient.clamp(-0.001, 0.001))
    module.last.weight.register_hook(lambda gradient: gradient / (gradient.norm() + 0.1))

    def sign(parameter):
        parameter.grad = parameter.grad.sign() * 0.01

    module.extra.bias.register_post_accumulate_grad_hook(sign)
    net = run.learner(module, lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9), clip=ts.ClipNorm(0.5))
    data = tokens(run, 17, 8)  # the last batch is one row
    for _ in run.epochs(2):
        for number, batch in enumerate(run.batches(data)):
            net.update(weighted_by_token(net), batch, micro_batch=3 if number % 2 else None)
    return {"weights": list(net.parameters())}


class Largest:
    """A metric object, which is fed what there is."""

    def reset(self):
        self.value = -math.inf

    def update(self, values):
        assert len(values)
        self.value = max(self.value, float(values.max()))

    def compute(self):
        return self.value


def measured_with_empty_batches(run):
    """Batches of four, none and one example, by a collate function that leaves samples out; as a stream and as a list."""
    rows = torch.randn(12, 4, generator=generator(7), dtype=DOUBLE)
    kept = {0, 1, 2, 3, 9}
    collate = lambda numbers: rows[[number for number in numbers if number in kept]]
    net = run.learner(nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=0.2))
    values = lambda rows: net(rows).squeeze(1).abs()
    found = []
    for data in (
        run.data(torch.utils.data.DataLoader(range(12), batch_size=4, collate_fn=collate), batch_size=4),
        run.data(lambda: map(collate, [range(4), range(4, 8), range(8, 12)])),
    ):
        found += [net.evaluate(values, data), net.evaluate(values, data, metric=Largest())]
    return {"found": torch.tensor(found, dtype=DOUBLE)}


def messages():
    return World.here.num_begun if World.here is not None else 0


def frozen_in_turns(run):
    """Each layer is frozen in turn, and none."""
    layers = [nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3), nn.Linear(3, 1)]
    net = run.learner(nn.Sequential(*layers), lambda p: torch.optim.SGD(p, lr=0.1))
    data = run.data(torch.randn(40, 4, generator=generator(9), dtype=DOUBLE), batch_size=4)
    for batch in run.batches(data):
        for place, layer in enumerate(net.module):
            layer.requires_grad_(place != run.step % 4)
        net.update(lambda rows: net(rows).squeeze(1).square(), batch)
    return {"weights": [*net.parameters()]}


def counted_beforehand(run):
    """Where `split=` counts otherwise the ranks tell each other before the update; of streams they know it by what was read."""
    rows = torch.randn(32, 4, generator=generator(11), dtype=DOUBLE)
    net = run.learner(nn.Linear(4, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    usual = lambda rows: net(rows).squeeze(1).square()
    across = lambda columns: net(columns.transpose(0, 1)).squeeze(1).square()
    kinds = {
        "known": (rows, usual, {}),
        "split": (rows, across, {"split": 1}),
        "stream": (lambda: iter(rows), usual, {}),
    }
    num_begun = {}
    for kind, (source, loss, options) in kinds.items():
        data = run.data(source, batch_size=7)  # 4 and 3 for two ranks; the last batch has 4
        counts = []
        for batch in run.batches(data):
            before = messages()
            net.update(loss, batch.transpose(0, 1) if options else batch, **options)
            counts.append(messages() - before)
        num_begun[kind] = counts[1:]  # in the first all meet
    told = int(run.world_size > 1)
    assert num_begun["stream"] == num_begun["known"], num_begun
    assert num_begun["split"] == [each + told for each in num_begun["known"]], num_begun
    return {"weights": [*net.parameters()]}


def measured_unasked(run):
    """Four batches and eight, of which the last leaves a rank without any: who has some the order of the data says, or who read."""
    net = run.learner(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1)), lambda p: torch.optim.SGD(p, lr=0.1))
    rows = torch.randn(57, 4, generator=generator(7), dtype=DOUBLE)
    values = lambda rows: net(rows).squeeze(1).abs()
    found, asked, meet = [], [], World.meet
    World.meet = lambda world, what, *numbers: (asked.append(what), meet(world, what, *numbers))[1]
    try:
        num_asked = []
        for number in (25, 57):
            for source in (rows[:number], lambda number=number: iter(rows[:number])):
                asked.clear()
                found.append(net.evaluate(values, run.data(source, batch_size=8)))
                num_asked.append(asked.count("a batch of an evaluation"))
    finally:
        World.meet = meet
    assert num_asked == [0] * 4, num_asked
    return {"found": torch.tensor(found, dtype=DOUBLE)}


def together(run):
    """One loss of two learners, one of them in bfloat16; only the other's weights can be compared."""
    first = run.learner(nn.Linear(4, 3), lambda p: torch.optim.Adam(p, lr=0.01), name="first")
    second = run.learner(nn.Linear(3, 1), lambda p: torch.optim.Adam(p, lr=0.01), name="second")
    data = run.data(torch.randn(18, 4, generator=generator(5), dtype=DOUBLE), batch_size=6)
    for _ in run.epochs(2):
        for batch in run.batches(data):
            ts.update(
                [first, second], lambda rows: second(first(rows)).squeeze(1).cos(), batch, micro_batch=2
            )
    return {"weights": [*first.parameters(), *second.parameters()]}


def left_out(run):
    """A value that is not finite, on the rank that has it alone: all leave the update out."""
    net = run.learner(nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1))
    rows = torch.arange(12.0, dtype=DOUBLE)[:, None]
    data = run.data(rows, batch_size=4)
    skipped = []
    for _ in run.epochs(1):
        for batch in run.batches(data):
            scale = torch.where(batch.squeeze(1) == 7, torch.nan, 1.0)
            update = net.update(lambda pair: net(pair[0]).squeeze(1) * pair[1], (batch, scale))
            skipped.append(float(update.skipped))
    return {"weights": list(net.parameters()), "skipped": torch.tensor(skipped)}


def gone_back(run):
    """Values that are not finite, on one rank alone, until all go back to a checkpoint."""
    net = run.learner(Blocks(), lambda p: torch.optim.Adam(p, lr=0.02, eps=1e-3), ema=ts.EMA(decay=0.9))
    data = tokens(run, 30, 3)
    update = 0
    for _ in run.epochs(1):
        for words, labels, _ in run.batches(data):
            update += 1
            scale = torch.full(
                (len(words),), torch.nan if update in (6, 7) and run.is_main else 1.0, device=words.device
            )
            net.update(
                lambda part: F.cross_entropy(net(part[0]).mT, part[1], reduction="none").mean(1) * part[2],
                (words, labels, scale.double()),
            )
    return {"weights": list(net.parameters())}


def computed_again(run):
    """A weight that is used within a reentrant checkpoint and outside of it: its gradient comes twice."""
    first, last = nn.Linear(4, 4), nn.Linear(4, 1)
    net = run.learner({"first": first, "last": last}, lambda p: torch.optim.SGD(p, lr=0.1))
    data = run.data(torch.randn(14, 4, generator=generator(9), dtype=DOUBLE), batch_size=4)

    def loss(rows):
        again = lambda hidden: first(first(hidden).tanh())
        hidden = checkpoint(again, first(rows).tanh(), use_reentrant=True)
        return last(checkpoint(again, hidden, use_reentrant=True)).squeeze(1).square()

    for _ in run.epochs(2):
        for batch in run.batches(data):
            net.update(loss, batch)
    return {"weights": list(net.parameters())}


class Bag(nn.Module):
    """A table of words of which a batch needs few rows; the second table is used by some batches alone."""

    def __init__(self, with_head=True):
        super().__init__()
        self.words, self.rare = (nn.Embedding(11, 3, sparse=True) for _ in range(2))
        self.never = nn.Embedding(5, 3, sparse=True)
        self.head = nn.Linear(3, 1) if with_head else nn.Flatten(0)

    def forward(self, words):
        found = self.words(words).mean(1)
        if (rare := words[:, 0] == 0).any():
            found = found + self.rare(words[:, 1]) * rare[:, None]
        return self.head(found).view(len(words), -1).mean(1)


def of_bags(run, factory, *, with_head, micro_batch):
    net = run.learner(Bag(with_head), factory, clip=ts.ClipNorm(0.3), micro_batch=micro_batch)
    words = run.data(torch.randint(0, 11, (21, 4), generator=generator(8)), batch_size=4)
    for _ in run.epochs(2):
        for batch in run.batches(words):
            net.update(lambda rows: net(rows).square() + net(rows), batch)
    return {"weights": list(net.parameters())}


def few_rows(run):
    """Gradients that hold few rows of a table, other ones on each rank; a table that a rank, or nobody, has used."""

    def two(p):
        is_table = lambda name, module, _: isinstance(module, nn.Embedding)
        rest = p.where(lambda name, module, _: not isinstance(module, nn.Embedding))
        return [torch.optim.SparseAdam(p.where(is_table), lr=0.05), torch.optim.SGD(rest, lr=0.1)]

    return of_bags(run, two, with_head=True, micro_batch=1)


def only_rows(run):
    """No other gradients."""
    return of_bags(run, lambda p: torch.optim.SGD(p, lr=0.1), with_head=False, micro_batch=None)


def single_number(run):
    """A parameter without dimensions."""
    module = nn.Linear(6, 1)
    module.scale = nn.Parameter(torch.tensor(1.0))
    run.learner(module, lambda p: torch.optim.SGD(p, lr=0.1))


def one_memory(run):
    """A tied weight, of which weight_norm has made two parameters."""
    module = nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 6, bias=False))
    module[1].weight = module[0].weight
    nn.utils.parametrizations.weight_norm(module[1])
    run.learner(module, lambda p: torch.optim.SGD(p, lr=0.1))


def other_weights(run):
    """The module is called once with weights of one's own."""
    net = run.learner(nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 1)), lambda p: torch.optim.SGD(p, lr=0.1))
    data = run.data(torch.randn(8, 6, generator=generator()), batch_size=4)

    def loss(rows):
        moved = {name: each * 2 for name, each in net.module.named_parameters()}
        return torch.func.functional_call(net.module, moved, (rows,)).square().sum(1)

    for batch in run.batches(data):
        net.update(loss, batch)


CASES = {
    case.__name__: case
    for case in (
        token_weights,
        few_examples,
        penalty,
        blocks,
        adversaries,
        statistics,
        unequal_parts,
        values_per_token,
        shrinking,
        contrast,
        searched,
        one_after_another,
        measured_with_empty_batches,
        hooked,
        together,
        left_out,
        gone_back,
        few_rows,
        only_rows,
        computed_again,
        frozen_in_turns,
        counted_beforehand,
    )
}
OPTIONS = {
    "left_out": {"nonfinite": "skip"},
    "one_memory": {"precision": "float32"},  # that of the weights: in another each is a copy of its own
    "gone_back": {"nonfinite": "rollback", "saving": ts.Saving(every_steps=4, rollback_after=2)},
}
DIRECTORIES = {"half": "resumed", "rest": "resumed"}
APART = (
    experts_apart,
    experts_more,
    experts_fewer_later,
    experts_measured,
    detached_apart,
    detached_at_last,
    detached_later,
)
MORE = {
    case.__name__: case
    for case in (
        half,
        rest,
        mixed,
        mixed_fp16,
        dropped,
        experts,
        detached,
        single_number,
        one_memory,
        other_weights,
        measured_unasked,
        *APART,
    )
}
"""Cases of some strategies."""


def trained(name, folder, strategy="auto"):
    """Run a case in a directory of its own; return the tensors that it ends with."""
    options = {
        "strategy": strategy,
        "precision": "float64",
        "progress": False,
        "quiet": True,
        "doctor": False,
        "timeout_seconds": 60.0,
    }
    torch.manual_seed(0)
    with ts.Run(folder / DIRECTORIES.get(name, name), seed=3, **options | OPTIONS.get(name, {})) as run:
        found = (CASES | MORE)[name](run)
        kept = {
            key: [gather_over_ranks(each.detach(), keep=True).clone().cpu() for each in value]
            for key, value in found.items()
        }
        if run.is_main:
            torch.save(kept, folder / f"{name}.pt")
    if name == "half" and run.is_main:
        shutil.copytree(folder / "resumed", folder / "copied")
    return kept


def refused(names, folder, strategy):
    """Write down with which words each case is refused."""
    for name in names:
        try:
            trained(name, folder, strategy)
        except ts.TruestepError as error:
            (folder / f"{name}-{os.environ['RANK']}.txt").write_text(f"{type(error).__name__}: {error}")


def on_cards():
    """Have a stand-in of as many cards as there are processes, until the end; tensors travel by gloo, since there is no NCCL."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from support.card import Card

    starting.collective_backend = lambda device: "gloo"
    Card(count=int(os.environ["WORLD_SIZE"])).__enter__()


if __name__ == "__main__":
    if sys.argv[3:4] == ["refused"]:
        refused(sys.argv[4:], Path(sys.argv[1]), sys.argv[2])
        sys.exit()
    if sys.argv[3:4] == ["card"]:
        on_cards()
    elif sys.argv[3:4] == ["ahead"]:  # of the host, as a card would be
        totals.is_async_device = lambda device: True
    for case in [each for each in sys.argv[3:] if each not in ("card", "ahead")] or CASES:
        trained(case, Path(sys.argv[1]), sys.argv[2])
