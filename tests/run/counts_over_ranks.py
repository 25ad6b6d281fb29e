# SPDX-License-Identifier: Apache-2.0
"""What a training costs each rank, counted: `python counts_over_ranks.py FOLDER NUM_TENSORS...` writes FOLDER/RANK.json.

Messages and bytes are those that this rank hands to torch, `received` the bytes that it gets of all ranks by gathering, requests
those that our code makes of the store (polls for a key that is not there yet, whose number is a matter of time, are left out).
What torch's own rendezvous asks of it is not counted.
"""

import json
import os
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import truestep as ts
from truestep.engine.processes import hang_watchdog, world
from truestep.run import agreement, process_group_setup

COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "broadcast",
    "gather",
    "reduce",
    "barrier",
)
REQUESTS = ("set", "get", "add", "wait", "multi_get")
VALUES = 12_000  # of all tensors together, so that an update is one message
STEPS = 4


class Counts:
    """Counts what goes out of this process, phase by phase."""

    def __init__(self):
        self.now = Counter()
        for name in COLLECTIVES:
            setattr(dist, name, self._counted(getattr(dist, name)))
        for name in REQUESTS:
            for kind in (dist.PrefixStore, dist.TCPStore, dist.HashStore):
                setattr(kind, name, self._asked(getattr(kind, name)))

    def _counted(self, collective):
        def call(*given, **options):
            tensors = [each for each in given if isinstance(each, torch.Tensor)]
            self.now["messages"] += 1
            self.now["bytes"] += sum(each.nbytes for each in tensors)
            lists = [each for each in given if isinstance(each, list)]
            self.now["received"] += sum(each.nbytes for tensors in lists for each in tensors)
            return collective(*given, **options)

        return call

    def _asked(self, request):
        def call(*given, **options):
            self.now["requests"] += 1
            return request(*given, **options)

        return call

    def taken(self):
        """Return what was counted since the last time."""
        found, self.now = self.now, Counter()
        return {name: found[name] for name in ("messages", "bytes", "received", "requests")}


def note_sockets():
    """Note, for each group that is made from now on, whether gloo is to open its sockets when they are used."""
    asked = []

    def noting(make):
        def noted(*given, **options):
            asked.append(os.environ.get("TORCH_GLOO_LAZY_INIT"))
            return make(*given, **options)

        return noted

    dist.init_process_group, dist.new_group = noting(dist.init_process_group), noting(dist.new_group)
    return asked


def open_sockets():
    links = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sum(str(link).startswith("socket:") for link in links)


class Many(nn.Module):
    def __init__(self, number):
        super().__init__()
        each = max(1, VALUES // number)
        for place in range(number):
            self.register_buffer(f"buffer{place}", torch.zeros(1))
        self.parts = nn.ParameterList([nn.Parameter(torch.randn(each)) for _ in range(number)])

    def forward(self, rows):
        return rows.sum(1) * torch.cat([*self.parts._parameters.values()]).square().mean()


class Seen:
    """A metric that tells what it was given, and in which order."""

    num_updates = 0

    def reset(self):
        self.rows = []

    def update(self, rows, _):
        self.num_updates += 1
        self.rows += rows.tolist()

    def compute(self):
        return {"are_in_order": self.rows == sorted(self.rows), "mean": torch.tensor(self.rows).mean()}


def counted(counts, folder, number, *, others_differ, strategy="auto"):
    torch.manual_seed(0)
    found = {}
    counts.taken()
    saving = ts.Saving(at_epoch_end=False, every_steps=2 + STEPS + 2, every_seconds=None, background=False)
    run = ts.Run(folder, progress=False, quiet=True, doctor=False, saving=saving, strategy=strategy)
    net = run.learner(Many(number), lambda p: torch.optim.SGD(p, lr=0.01), name="net")
    batch_size = 2 * run.world_size
    rows = run.data(torch.randn(32 * batch_size, 4), batch_size=batch_size)
    numbers = torch.arange(8.0 * batch_size - 1)  # the last batch is a short one
    checked = run.data(numbers[:, None].expand(-1, 4), batch_size=batch_size)
    batches = iter(run.batches(rows))

    def update():
        net.update(net, next(batches))

    for _ in range(2):
        update()
    found["start"] = counts.taken()
    for _ in range(STEPS):
        update()
    found["steps"] = counts.taken()
    for _ in range(STEPS):
        update()
    found["steps with a save"] = counts.taken()
    net.evaluate(net, checked)
    found["evaluation"] = counts.taken()
    metric = Seen()
    # more for each row than a small message holds, so that it is seen who gets it
    answer = net.evaluate(
        lambda batch: (batch[:, 0], batch.new_zeros(len(batch), 64)), checked, metric=metric
    )
    found["metric"] = counts.taken()
    assert not others_differ or answer == {"are_in_order": True, "mean": float(numbers.mean())}
    assert metric.num_updates == (0 if run.rank else 8 * run.world_size)
    found["process"] = {"sockets": open_sockets(), "threads": len(list(Path("/proc/self/task").iterdir()))}
    batches.close()
    run.close()
    return found


def main(folder, numbers, **options):
    # None is a matter of steps: the ranks agree about once a second, whoever waits looks for a failure twice in it, and a thread
    # looks once whether the others have gone on while this rank is in a call of torch's.
    agreement.SECONDS_BETWEEN, world.POLL, hang_watchdog._LOOK_SECONDS = 1e9, timedelta(minutes=10), 1e6
    # where another rank begins half a second late, the offer is asked for once more: a matter of time
    come = process_group_setup._has_key_within
    process_group_setup._has_key_within = lambda store, key, _, *others: come(store, key, 60, *others)
    counts, before, asked = Counts(), dict(os.environ), note_sockets()
    options = {"others_differ": True, **options}
    found = {number: counted(counts, folder / f"run{number}", number, **options) for number in numbers}
    rank = dist.get_rank() if dist.is_initialized() else 0
    # for the groups of the start alone (that of divided weights comes later): what is made behind it is as without a run
    assert set(asked[:1]) == ({"1"} if dist.is_initialized() else set()), asked
    assert dict(os.environ) == before
    (folder / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(each) for each in sys.argv[2:]])
