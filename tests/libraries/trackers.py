# SPDX-License-Identifier: Apache-2.0
"""`python -m libraries.trackers`: kill trainings at drawn moments, go on, and read back what wandb and MLflow have, offline."""

import math
import os
import random
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn

import truestep as ts
from truestep.report.metrics import read_metrics

STEPS = 24
TIMES = ("samples_per_second", "memory_bytes", "save_stall_seconds")  # what two runs differ in
Values = dict[str, dict[int, list[float]]]  # by name and step, each as often as it was told


def trackers(service: str, folder: Path) -> list[ts.Tracker]:
    """Return the tracker of a service, whose data stay in a folder."""
    if service == "mlflow":
        return [ts.MlflowTracker("kills", tracking_uri=f"sqlite:///{folder}/mlflow.db")]
    return [ts.WandbTracker("kills", mode="offline")] if service == "wandb" else []


def train(folder: Path, service: str, stop_at: int | None = None) -> list[torch.Tensor]:
    """Train, and end at a step as a kill does."""
    run = ts.Run(
        folder / "run",
        seed=0,
        config={"lr": 0.1, "layers": [3, 1], "key": "sk-live-0123456789abcdef0123"},
        trackers=trackers(service, folder),
        saving=ts.Saving(every_steps=5, background=False),
        log_every=2,
        quiet=True,
        progress=False,
    )
    net = run.learner(
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)), lambda p: torch.optim.SGD(p, lr=0.1)
    )
    for step in run.steps(STEPS):
        net.update(lambda x: net(x).squeeze(1).square(), torch.randn(8, 3))
        if step % 6 == 5:
            picture = ts.Image(torch.rand(1, 8, 8))
            run.log(
                score=float(step), odd=math.nan if step > 9 else 1.0, picture=picture, note=ts.Text("a < b")
            )
            run.trackers.histogram("weight", net.module[0].weight)
        if step == stop_at:
            os._exit(9)
    return [each.detach().clone() for each in net.parameters()]


def from_mlflow(folder: Path) -> Values:
    """Read all runs of an experiment, which must be one."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("kills")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED", found.info.status
    assert found.data.params["lr"] == "0.1"
    assert "sk-live" not in str(found.data.params), found.data.params
    assert client.list_artifacts(found.info.run_id, "picture"), "no picture"
    values: Values = {}
    for name in found.data.metrics:
        for each in client.get_metric_history(found.info.run_id, name):
            values.setdefault(name, {}).setdefault(each.step, []).append(
                math.nan if each.value is None else each.value
            )
    return values


def from_wandb(folder: Path) -> Values:
    """Read the offline files, all of which must be of one run."""
    from wandb.proto import wandb_internal_pb2

    values: Values = {}
    names = set()
    for path in sorted((folder / "run" / "wandb").glob("offline-run-*/*.wandb")):
        for data in wandb_records(path.read_bytes()):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.HasField("run"):
                names.add(record.run.run_id)
                assert "sk-live" not in str(record.run.config), record.run.config
            if record.HasField("history"):
                items = {each.key or each.nested_key[0]: each.value_json for each in record.history.item}
                for name, value in items.items():
                    told = values.setdefault(name, {}).setdefault(int(items["step"]), [])
                    told.append(math.nan if value.strip('"') == "NaN" else as_number(value))
    assert len(names) == 1, names
    assert {"picture", "note", "weight"} <= {*values}, values.keys()
    return values


def as_number(text: str) -> float:
    """Return a number, or -1 for what is none: a picture, a histogram."""
    try:
        return float(text)
    except ValueError:
        return -1.0


def wandb_records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a file in the form of LevelDB's log, which wandb writes: blocks of 32 KiB, records cut by them."""
    place, record = 7, b""  # behind the file's own head
    while place + 7 <= len(data):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


READ: dict[str, Callable[[Path], Values]] = {"mlflow": from_mlflow, "wandb": from_wandb}


def child(folder: Path, service: str, stop_at: int | None) -> int:
    """Train in a process of its own."""
    words = [sys.executable, "-m", "libraries.trackers", service, str(folder), str(stop_at)]
    return subprocess.run(words, check=False, timeout=300).returncode


def hold(service: str, draw: random.Random, kills: int) -> None:
    """Kill and go on; compare what the service has with the run's own lines."""
    with tempfile.TemporaryDirectory(prefix="trackers.") as name:
        folder = Path(name)
        stops = sorted(draw.sample(range(STEPS - 1), kills))
        for stop in stops:
            assert child(folder, service, stop) == 9
        assert child(folder, service, None) == 0
        found = READ[service](folder)
        twice = 0
        for line in read_metrics(folder / "run" / "metrics.jsonl"):
            for key, value in line.values.items():
                told = found[key.replace("@", "_")][line.step]
                assert key in TIMES or {*map(repr, told)} == {repr(value)}, (key, line.step, value, told)
                twice += len(told) - 1
        assert service != "mlflow" or twice == 0, twice
        print(f"{service}: killed at {stops}, every value is there ({twice} told twice)", flush=True)


def main() -> None:
    """Hold both services to a few drawn kills, and to changing nothing."""
    draw = random.Random(0)
    for service in READ:
        for kills in (1, 3):
            hold(service, draw, kills)
        with tempfile.TemporaryDirectory(prefix="trackers.") as name:
            one, other = train(Path(name) / "a", service), train(Path(name) / "b", "none")
            assert all(map(torch.equal, one, other)), f"{service} changes what is trained"
        print(f"{service}: the weights are those of a run without it", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        train(Path(sys.argv[2]), sys.argv[1], None if sys.argv[3] == "None" else int(sys.argv[3]))
    else:
        main()
