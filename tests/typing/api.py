# SPDX-License-Identifier: Apache-2.0
"""What type checkers and editors know of the public names; mypy --strict reads this file (`make check`), nothing runs it.

Each ignored error has to occur: an ignore without its error is an error itself.
"""

import torch

import truestep as ts

run = ts.Run("runs/typing", seed=0)
net = run.learner(
    torch.nn.Linear(2, 1), lambda parameters: torch.optim.SGD(parameters, lr=0.1), clip=ts.ClipNorm(1.0)
)
data = run.data(torch.ones(4, 2), batch_size=2, shuffle=True)
run.data(torch.ones(4, 2), shuffel=True)  # type: ignore[call-arg]
ts.ClipNrom(1.0)  # type: ignore[attr-defined]
ts.nn.Upsampel  # type: ignore[attr-defined]
run.learner(torch.nn.Linear(2, 1), torch.optim.SGD, clip_norm=1.0)  # type: ignore[call-arg]

for _ in run.epochs(1):
    for batch in run.batches(data):
        update: ts.Update = net.update(lambda rows: net(rows).square().mean(1), batch)
        loss: torch.Tensor = update.loss
    run.log(rate=net.learning_rate)
