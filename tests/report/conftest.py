# SPDX-License-Identifier: Apache-2.0
"""Runs to draw, as their files would be."""

import json
import math
import random

import numpy as np
import pytest

import truestep
from truestep.report.metrics import MetricsFile
from truestep.run.media.folder import write_media_files

CHOICES = [
    {"name": "device", "value": "cpu", "reason": "no accelerator is available"},
    {"name": "fused", "value": True, "reason": "the fused AdamW took 41 µs a step and the plain one 187 µs"},
]
CONFIG = {
    "recipe": "digits", "epochs": 20, "data": None, "augment": True,
    "optimizer": {"name": "AdamW", "betas": [0.9, 0.999]},
    "a_long_name_without_any_break_in_it_at_all": "/a/long/path/" + "without-a-break" * 6,
}  # fmt: skip
ENVIRONMENT = {
    "python": "3.11.2", "gpus": [], "cpu": {"model": "EPYC", "cores": 2},
    "packages": {f"package-{index}": f"1.{index}" for index in range(30)},
}  # fmt: skip


def write_lines(folder, lines):
    folder.mkdir(parents=True, exist_ok=True)
    with MetricsFile(folder / "metrics.jsonl") as file:
        for step, epoch, values in lines:
            file.append(step=step, epoch=epoch, elapsed_seconds=step * 0.01, values=values)
    return folder


def write_facts(folder):
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"config": CONFIG, "environment": ENVIRONMENT, "choices": CHOICES}
    for name, value in facts.items():
        (folder / f"{name}.json").write_text(json.dumps(value), "utf-8")
    return folder


def plain(folder, num_steps=2000):
    chance = random.Random(0)

    def lines():
        for step in range(1, num_steps + 1):
            epoch = (step - 1) * 20 // num_steps
            values = {
                "loss": 2.3 * math.exp(-8 * step / num_steps) * math.exp(chance.gauss(0, 0.3)) + 0.004,
                "learning_rate": 0.003 * (0.5 + 0.5 * math.cos(math.pi * step / num_steps)),
                "gradient_norm": math.exp(chance.gauss(0, 0.4)),
                "updates_skipped": 0,
                "samples_per_second": 16_000 * (1 + chance.gauss(0, 0.04)),
                "memory_bytes": 320 * 2**20 + step * 1000,
            }
            yield step, epoch, values
            if step % (num_steps // 20) == 0:
                yield step, epoch, {"accuracy": 1 - 0.6 / (1 + epoch), "test_loss": 2.0 / (1 + epoch)}

    return write_lines(write_facts(folder), lines())


def two_learners(folder):
    chance = random.Random(1)

    def lines():
        for step in range(1, 3001):
            spoiled = math.nan if 1000 < step < 1200 or step == 2500 else math.inf if step == 2000 else None
            values = {
                "discriminator/loss": chance.gauss(-1, 0.4),
                "generator/loss": spoiled or chance.gauss(1, 0.3),
                "discriminator/learning_rate": 2e-4,
                "generator/learning_rate": 1e-4,
                "generator/gradient_norm": math.exp(chance.gauss(1, 1)),
                "generator/updates_skipped": step // 500,
                "memory_bytes": 31 * 2**30,
            }
            yield step, step // 300, values
            if step % 500 == 0:
                yield (
                    step,
                    step // 300,
                    {"fid": 90 - step / 100, "a_name_that_is_long_and_has_no_break_anywhere_in_it": math.nan},
                )

    return write_lines(write_facts(folder), lines())


def three_lines(folder):
    return write_lines(folder, [(step, 0, {"loss": 1 / step}) for step in (1, 2, 3)])


def extremes(folder):
    """Names that look like HTML, numbers at the ends of what there is, more steps than fit on an axis, labels of 13 characters."""
    values = [1e300, -1e300, 1e-300, math.nan, -math.inf, 123456789.125, 0.0]
    rows = [
        (
            1_000_000_000 + index * 1_234_567,
            index,
            {
                "<b>&\"'</script>": value,
                "constant": 1_000_000.25,
                "close": -3.79325e-112 * (1 + index * 1e-6),
            },
        )
        for index, value in enumerate(values)
    ]
    folder = write_lines(folder, rows)
    evil = {"</script><script>alert(1)</script>": "<img src=x onerror=alert(2)>"}
    (folder / "config.json").write_text(json.dumps(evil), "utf-8")
    (folder / "choices.json").write_text(json.dumps([{"name": "<i>", "value": "</td>", "reason": None}, 3]))
    return folder


def with_samples(folder):
    """Pictures small, wide and spoilt, sound, text that looks like HTML and text without any break."""
    chance = np.random.default_rng(0)
    folder = write_lines(folder, [(step, 0, {"loss": 1 / step}) for step in (1, 2, 3)])
    for step in (1, 20, 300):
        media = {
            "digits": truestep.Image(chance.random((16, 1, 8, 8))),
            "a picture wider than any page": truestep.Image(chance.random((3, 40, 1600)), high=0.5),
            "speech": truestep.Audio(np.sin(np.arange(4_000) / 9), 8_000),
            "words": truestep.Text(f"<b>{step}</b>\n  indented " + "without-a-break" * 20),
        }
        written = write_media_files(folder, step, media)
        with MetricsFile(folder / "metrics.jsonl") as file:
            lines = {each.name: each.line for each in written}
            file.append(step=step, epoch=0, elapsed_seconds=step * 0.01, values={}, media=lines)
    return folder


ALL = {
    "plain": plain,
    "samples": with_samples,
    "two learners": two_learners,
    "three lines": three_lines,
    "extremes": extremes,
}


@pytest.fixture(scope="session")
def example_runs(tmp_path_factory):
    """Return each run's folder by its name."""
    root = tmp_path_factory.mktemp("runs")
    return {name: make(root / name) for name, make in ALL.items()}


@pytest.fixture
def log():
    """Return the function that writes lines of metrics."""
    return write_lines
