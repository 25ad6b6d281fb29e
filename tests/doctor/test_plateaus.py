# SPDX-License-Identifier: Apache-2.0
"""A plateau whose figures are never finite is told of; one that waits for its first figure is not."""

import pytest
from doctor.test_watchers import run_example

PLATEAU = """
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, {options})
best, history = float("inf"), []
for epoch in range(5):
    for _ in range(4):
        x = torch.randn(8, 4)
        loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    history.append(loss.item())
    sched.step({figure})
"""


@pytest.mark.sliced(4)
@pytest.mark.parametrize(
    ("figure", "options", "is_told"),
    [
        ("best", "", True),
        ("float('inf')", "", True),
        ("torch.tensor(float('inf'))", "", True),
        ("float('nan')", "", True),
        ("min([best])", "", True),
        ("-best", "mode='max'", True),
        ("torch.tensor([]).mean()", "", True),
        ("loss", "", False),
        ("loss.item()", "", False),
        ("-loss.item()", "mode='max'", False),
        ("best if epoch == 0 else loss.item()", "", False),
        ("best if epoch < 2 else history[-1]", "", False),
        ("0.0", "", False),
        ("-best", "", False),
        ("min(history)", "factor=0.5", False),
        ("loss.detach()", "patience=0", False),
    ],
)
def test_a_plateau_is_told_of_where_no_figure_is_finite(figure, options, is_told):
    watch = run_example(PLATEAU.format(figure=figure, options=options))
    assert [each.code for each in watch.findings if "plateau" in each.message] == ["SCHED010"] * is_told
