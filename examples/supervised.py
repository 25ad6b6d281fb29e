# SPDX-License-Identifier: Apache-2.0
"""Supervised training: handwritten digits, precision, clip, schedule, average of weights, evaluation.

    python examples/supervised.py [DIRECTORY]

Run it again, and it goes on where it stopped; delete the directory to begin anew.
"""

import sys

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

import truestep as ts


def main(directory: str = "runs/supervised", epochs: int = 10) -> float:
    run = ts.Run(directory, seed=0, precision="bf16-mixed", saving=ts.Saving(best="accuracy"))
    images, labels = (torch.tensor(array) for array in load_digits(return_X_y=True))
    images = images.float().view(-1, 1, 8, 8) / 16
    train = run.data((images[:1440], labels[:1440]), batch_size=96, shuffle=True)
    test = run.data((images[1440:], labels[1440:]), batch_size=512)

    total_steps = epochs * len(train)
    net = run.learner(
        nn.Sequential(
            *(nn.Conv2d(1, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU()),
            *(nn.Conv2d(32, 32, 3), nn.GroupNorm(4, 32), nn.ReLU()),
            *(nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * 36, 10)),
        ),
        lambda p: torch.optim.AdamW(p.decayed(0.05), lr=3e-3),
        clip=ts.ClipNorm(1.0),
        schedule=lambda o: ts.warmup_cosine(o, warmup_steps=total_steps // 20, total_steps=total_steps),
        ema=ts.EMA(decay=0.99),
        name="net",
    )

    def loss(batch):
        images, labels = batch
        return F.cross_entropy(net(images), labels, reduction="none")

    def correct(batch):
        images, labels = batch
        return (net(images).argmax(1) == labels).float()

    for _ in run.epochs(epochs):
        for batch in run.batches(train):
            net.update(loss, batch)
        run.log(accuracy=net.evaluate(correct, test, averaged=True))

    accuracy = net.evaluate(correct, test, averaged=True)
    print(f"{accuracy:.1%} of the test images are named right; see {run.directory}/report.html")
    return accuracy


if __name__ == "__main__":
    main(*sys.argv[1:2])
