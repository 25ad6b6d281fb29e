# SPDX-License-Identifier: Apache-2.0
"""What a mirror costs a training: processor time and time by the clock, side by side with the same training without one.

python benchmarks/mirror/cost.py [--pairs 5] [--seconds 30] [--every 30]

Each pair is two trainings of the same number of updates, one after the other, the order changing from pair to pair: one without
a mirror, and one with a store that is away throughout (nobody listens), or that is there (an S3 server on loopback, ministack).
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.slow_proxy import SlowProxy


def train(directory: str, seconds: float, steps: int, every: float) -> None:
    """Train so long, or so many steps; print steps, time by the clock, processor time of the loop."""
    import torch
    from torch import nn

    import truestep as ts

    torch.set_num_threads(1)
    run = ts.Run(directory, seed=0, quiet=True, progress=False, saving=ts.Saving(every_seconds=every))
    net = run.learner(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 512)), torch.optim.AdamW)
    data = run.data(torch.randn(4096, 256), batch_size=64, shuffle=True)

    def loss(rows: torch.Tensor) -> torch.Tensor:
        return net(rows).square().mean(1)

    with run:
        begun, used = time.perf_counter(), time.process_time()
        for _ in run.epochs(100_000):
            for rows in run.batches(data):
                net.update(loss, rows)
                if run.step == steps or (not steps and time.perf_counter() - begun > seconds):
                    figures = run.step, time.perf_counter() - begun, time.process_time() - used
                    print(json.dumps(figures), flush=True)
                    os._exit(0)  # the end of a run is not what is measured


def trained(place: Path, mirror: str | None, seconds: float, steps: int, every: float) -> list[float]:
    place.mkdir()
    command = [sys.executable, __file__, "--one", str(place / "run"), "--seconds", str(seconds)]
    env = os.environ | {"OMP_NUM_THREADS": "1"} | ({"TRUESTEP_MIRROR": mirror} if mirror else {})
    done = subprocess.run(
        [*command, "--steps", str(steps), "--every", str(every)],
        env=env,
        cwd=place,
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def server(folder: Path) -> Iterator[int]:
    """Run an S3 server."""
    port = free_port()
    env = os.environ | {"GATEWAY_PORT": str(port), "HOME": str(folder), "SERVICES": "s3"}
    process = subprocess.Popen(
        [sys.executable, "-m", "ministack"],
        env=env,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while process.poll() is None:
            with socket.socket() as there:
                if there.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        urllib.request.urlopen(
            urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT")
        ).close()
        yield port
    finally:
        process.terminate()
        process.wait()


@contextmanager
def away(folder: Path, *, is_away: bool) -> Iterator[str]:
    """Yield an address; nobody answers there once the run has begun, or somebody does."""
    with server(folder) as port:
        proxy = SlowProxy(port)
        os.environ |= {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }
        if is_away:  # a start needs the store: it goes away when the lease is there
            threading.Thread(target=_goes_away, args=(proxy,), daemon=True).start()
        yield "s3://bucket/cost"
        proxy.close()


def _goes_away(proxy: SlowProxy) -> None:
    while not any(each.startswith(b"PUT") and b"/lease/" in each for each in proxy.requests):
        time.sleep(0.05)
    time.sleep(1.0)
    proxy.away()


def compare(name: str, pairs: int, seconds: float, every: float) -> None:
    clock, processor = [], []
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        steps = int(trained(folder / "first", None, seconds, 0, every)[0])
        for pair in range(pairs):
            found = {}
            for with_mirror in [False, True] if pair % 2 else [True, False]:
                place = folder / f"{pair}-{with_mirror}"
                if not with_mirror:
                    found[False] = trained(place, None, seconds, steps, every)
                    continue
                store = folder / f"store-{pair}"
                store.mkdir()
                with away(store, is_away=name == "away") as address:
                    found[True] = trained(place, address, seconds, steps, every)
            clock.append(found[True][1] / found[False][1])
            processor.append(found[True][2] / found[False][2])
            print(f"{name} pair {pair}: clock {clock[-1]:.3f}, processor {processor[-1]:.3f}", flush=True)
    print(
        f"{name}, {steps} updates, saves every {every:g} s: clock {statistics.median(clock):.3f}, processor time "
        f"{statistics.median(processor):.3f} of the training without a mirror (medians of {pairs} pairs)"
    )


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--one")
    options.add_argument("--steps", type=int, default=0)
    options.add_argument("--seconds", type=float, default=30.0)
    options.add_argument("--every", type=float, default=30.0)
    options.add_argument("--pairs", type=int, default=5)
    options.add_argument("--which", default="there,away")
    chosen = options.parse_args()
    if chosen.one:
        train(chosen.one, chosen.seconds, chosen.steps, chosen.every)
        return
    for name in chosen.which.split(","):
        compare(name, chosen.pairs, chosen.seconds, chosen.every)


if __name__ == "__main__":
    main()
