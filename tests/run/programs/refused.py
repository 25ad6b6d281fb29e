# SPDX-License-Identifier: Apache-2.0
"""What ranks must not do, one thing after another, each in a run of its own: `python refused.py FOLDER [NAME...]`.

Each rank writes down with which words it was refused, in FOLDER/RANK.json.
"""

import atexit
import gc
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import truestep as ts
from truestep.engine.processes.world import World

RANK = int(os.environ["RANK"])


def learner(run, module=None, **options):
    return run.learner(module or nn.Linear(2, 1), lambda p: torch.optim.SGD(p, lr=0.1), name="net", **options)


def squared(net):
    return lambda rows: net(rows).squeeze(1).square()


ROWS = torch.ones(2, 2)


def sizes(run):
    """A list of sizes."""
    net = learner(run)
    net.update(squared(net), ROWS, micro_batch=[1, 1])


def scalar(run):
    """A mean over a part."""
    net = learner(run)
    net.update(lambda rows: net(rows).square().mean(), ROWS)


def ungathered(run):
    """A loss of the whole batch that sees a part of it."""
    net = learner(run)
    net.update(squared(net), ROWS, decomposable=False)


def short(run):
    """A loss of the whole batch where a rank has nothing of it."""
    net = learner(run)
    net.update(lambda rows: net(ts.gather(rows)).squeeze(1), ROWS[RANK:][:1][: 1 - RANK], decomposable=False)


def nothing(run):
    """A batch without any example."""
    net = learner(run)
    net.update(squared(net), ROWS[:0])


def options(run):
    """Another clip on each rank."""
    net = learner(run, clip=ts.ClipNorm(1.0 + RANK))
    net.update(squared(net), ROWS)


def shapes(run):
    """Another network on each rank."""
    net = learner(run, nn.Linear(2, 1 + RANK))
    net.update(squared(net), ROWS)


def configuration(run):
    """Said when the run is made; see `made`."""


def weights(run):
    """A weight that is changed outside of updates, on one rank."""
    net = learner(run)
    for _ in run.steps(1):
        net.update(squared(net), ROWS)
        with torch.no_grad():
            net.module.bias.add_(RANK)


def evaluated(run):
    """A measure on rank 0 alone."""
    net = learner(run)
    for _ in run.steps(1):
        if run.is_main:
            net.evaluate(squared(net), [ROWS])
        net.update(squared(net), ROWS)


def caught(run):
    """An exception that its rank catches."""
    net = learner(run)

    def loss(rows):
        if RANK:
            raise ValueError("a bad sample")
        return squared(net)(rows)

    for _ in run.steps(2):
        try:
            net.update(loss, ROWS)
        except ValueError:
            continue


def modes(run):
    """Batch normalisation that trains on one rank alone."""
    switched(run, nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)), lambda module: module.train(bool(RANK)))


def two_layers():
    return nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.Linear(2, 1))


def switched(run, module, switch):
    """Train a step, switch something, and train on."""
    net = learner(run, module)
    for step in run.steps(3):
        if step == 1:
            switch(net.module)
        net.update(squared(net), ROWS)


def dropout(run):
    """A layer in evaluation mode on rank 0 alone."""
    switched(run, two_layers(), lambda module: module[1].train(bool(RANK)))


def held(run):
    """Statistics that are held on rank 0 alone."""
    module = nn.Sequential(nn.InstanceNorm1d(2, track_running_stats=True), nn.Linear(2, 1))
    switched(run, module, lambda module: None if RANK else ts.freeze(module, "0", statistics=True))


def frozen(run):
    """Layers that are frozen on rank 0 alone."""
    switched(run, two_layers(), lambda module: None if RANK else ts.freeze(module, "0"))


def frozen_in_turn(run):
    """As many parameters of one size frozen on each rank, and not the same."""
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 1))
    switched(run, module, lambda module: ts.freeze(module, str(1 - RANK)))


def frozen_in_block(run):
    """Another layer frozen on each rank, where nobody counts examples."""
    net = learner(run, two_layers())
    for step in run.steps(2):
        if step == 1 and not RANK:
            ts.freeze(net, "0")
        with net.accumulating(weight=4.0) as update:
            update.backward(squared(net)(ROWS))


def option(run):
    """A number of a layer that the loop sets on rank 1 alone."""
    switched(run, two_layers(), lambda module: setattr(module[1], "p", 0.1 if RANK else 0.5))


def option_at_start(run):
    """Another number of a layer from the start."""
    switched(run, nn.Sequential(nn.Linear(2, 1), nn.Dropout(0.5 + 0.1 * RANK)), lambda module: None)


def modes_at_start(run):
    """Another mode from the start."""
    module = two_layers()
    module[1].train(not RANK)
    switched(run, module, lambda module: None)


def schedule(run):
    """Another schedule on each rank, which begins at another rate."""
    net = learner(run, schedule=lambda o: ts.warmup_cosine(o, warmup_steps=2 + 2 * RANK, total_steps=8))
    net.update(squared(net), ROWS)


def schedule_later(run):
    """Another end of the schedule; divided weights would otherwise train each part at a rate of its own."""
    net = learner(run, schedule=lambda o: ts.warmup_cosine(o, warmup_steps=2, total_steps=8 + RANK))
    for _ in run.steps(4):
        net.update(squared(net), ROWS)


def rate(run):
    """A rate that is set by hand on one rank."""
    net = learner(run)
    for _ in run.steps(1):
        net.update(squared(net), ROWS)
        if run.is_main:
            net.optimizers[0].param_groups[0]["lr"] = 0.25


def uneven(run):
    """A loader that is longer on one rank than on the other."""
    net = learner(run)
    for _ in run.steps(1):
        for rows in [ROWS] * (2 + RANK):
            net.update(squared(net), rows)


def tracks(run, *, on_all=(), on_one=(), own=()):
    """Track generators under these names, and train a step."""
    net = learner(run)
    for name in (*on_all, *(on_one if RANK else ())):
        run.track(**{name: torch.Generator()})
    run.track(per_rank=True, **{name: torch.Generator() for name in own})
    net.update(squared(net), ROWS)


def tracked_besides(run):
    """One object more on rank 1."""
    tracks(run, on_all=["a"], on_one=["b"])


def tracked_alone(run):
    """An object on rank 1 alone."""
    tracks(run, on_one=["b"], own=["c"])


def tracked_otherwise(run):
    """The same object under two names."""
    tracks(run, on_all=[f"of_{RANK}"])


def tracked_for_one(run):
    """A state of all on rank 0, and of its own on rank 1."""
    tracks(run, on_all=[] if RANK else ["a"], own=["a"] if RANK else [])


def tracked_rightly(run):
    """The same in another order, and states of one rank."""
    tracks(run, on_all=["a", "b"][:: 1 - 2 * RANK], own=["c"] if RANK else ["d", "e"])


def named(run):
    """Other metrics on each rank."""
    net = learner(run)
    net.update(lambda rows: ts.weighted(squared(net)(rows), **{f"of_{RANK}": rows[:, 0]}), ROWS)


CASES = [
    *(sizes, scalar, ungathered, short, nothing, options, shapes, configuration, weights, evaluated, caught),
    *(modes, dropout, held, frozen, frozen_in_turn, frozen_in_block, option, option_at_start, modes_at_start),
    *(schedule, schedule_later, rate, uneven, named),
    *(tracked_besides, tracked_alone, tracked_otherwise, tracked_for_one, tracked_rightly),
]


def refused(case, folder, **options):
    """Return the words; afterwards this process is as if it had just been started."""
    run = None
    try:
        config = {"width": RANK} if case is configuration else {}
        run = ts.Run(
            folder / case.__name__, progress=False, quiet=True, doctor=False, config=config, **options
        )
        with run:
            case(run)
    except ts.TruestepError as error:
        said = f"{type(error).__name__}: {error}"
    else:
        said = "nothing was raised"
    world = run and run.context.world
    if world is not None and dist.is_initialized():
        atexit.unregister(world._close_at_exit)
        world.links.close()
        World.here = None
    del run, world
    gc.collect()
    return said


def num_open_files():
    """How many files and sockets this process holds; 0 on a system that doesn't say."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    found, num_open = {}, []
    for case in CASES:
        if not names or case.__name__ in names:
            found[case.__name__] = refused(case, folder)
            num_open.append(num_open_files())
    print(json.dumps(num_open), flush=True)
    (folder / f"{RANK}.json").write_text(json.dumps(found, indent=1))
    while RANK == 0 and not (folder / "1.json").exists():
        time.sleep(0.05)  # the store is rank 0's, and rank 1 has yet to say why it stops
    os._exit(0)
