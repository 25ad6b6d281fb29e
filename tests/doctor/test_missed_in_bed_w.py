# SPDX-License-Identifier: Apache-2.0
"""What the reader of bed W saw and the doctor did not, each in several wordings with right twins."""

import pytest

from tests.support.told import told

# ── GRAD007: Accelerate steps nothing by itself ──

PREPARED = """
from accelerate import Accelerator
accelerator = Accelerator(); net = nn.Linear(3, 2); opt = torch.optim.Adam(net.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.StepLR(opt, 3)
net, opt, loader, sched = accelerator.prepare(net, opt, loader, sched)
for x, y in loader:
    loss = F.cross_entropy(net(x), y)
    LINES
"""


@pytest.mark.parametrize(
    "lines",
    [
        "accelerator.backward(loss); sched.step(); opt.zero_grad()",
        "opt.zero_grad(); accelerator.backward(loss)",
        "opt.zero_grad(); loss.backward(); accelerator.clip_grad_norm_(net.parameters(), 1.0)",
        "accelerator.backward(loss); opt.zero_grad(set_to_none=True); accelerator.log({'loss': loss.item()})",
        "with accelerator.autocast(): loss = F.cross_entropy(net(x), y)\n    opt.zero_grad(); accelerator.backward(loss)",
        "with accelerator.accumulate(net):\n        accelerator.backward(loss); opt.zero_grad()",
    ],
)
def test_no_step_beside_accelerate(lines: str) -> None:
    assert len(told("GRAD007", PREPARED.replace("LINES", lines))) == 1
    stepped = lines.replace("opt.zero_grad(", "opt.step(); opt.zero_grad(")
    assert not told("GRAD007", PREPARED.replace("LINES", stepped))


# ── PARAM005: a head that is replaced under a test, or moved at once ──

REPLACED = """
net = torchvision.models.resnet18(); opt = torch.optim.Adam(net.parameters(), lr=0.1)
LINES
for x, y in loader:
    opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
"""


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ("net.fc = nn.Linear(512, 10).to(device)", 1),
        ("net.fc = nn.Linear(512, 10).cuda().half()", 1),
        ("if args.classes != 1000:\n    net.fc = nn.Linear(512, args.classes)", 1),
        ("if a:\n    net.fc = nn.Linear(512, 10).to(device)\nelif b:\n    net.fc = nn.Linear(2048, 10).to(device)", 2),
        ("with torch.no_grad():\n    net.fc = nn.Linear(512, 10)", 1),
        ("try:\n    net.fc = nn.Linear(512, 10)\nexcept RuntimeError:\n    pass", 1),
        ("if a:\n    net.fc = nn.Linear(512, 10)\n    opt = torch.optim.Adam(net.parameters())", 0),
        ("if a:\n    net.fc = nn.Linear(512, 10)\nopt = torch.optim.Adam(net.parameters())", 0),
        ("if a:\n    net.fc = nn.Linear(512, 10); opt.add_param_group({'params': net.fc.parameters()})", 0),
        ("if a:\n    net = make(); net.fc = nn.Linear(512, 10)\n    opt = torch.optim.Adam(net.parameters())", 0),
        ("other.fc = nn.Linear(512, 10).to(device)", 0),
        ("net.scale = torch.ones(3).to(device)", 0),
    ],
)  # fmt: skip
def test_a_head_replaced_behind_its_optimizer(lines: str, count: int) -> None:
    assert len(told("PARAM005", REPLACED.replace("LINES", lines))) == count


def test_a_head_replaced_in_the_arm_without_an_optimizer() -> None:
    lines = "if a:\n    opt = torch.optim.Adam(net.parameters())\nelse:\n    net.fc = nn.Linear(512, 10)\n"
    assert not told("PARAM005", "net = torchvision.models.resnet18()\n" + lines)


# ── EVAL039: the only value of a mean is appended behind the loop ──

APPENDED = """
def epoch(net, loader, opt, criterion):
    losses = []
    LINES
"""
LOOP = (
    "for x, y in loader:\n        loss = criterion(net(x), y); opt.zero_grad(); loss.backward(); opt.step()"
)


PUT, PUT_IN = "\n    losses.append(loss.item())", "\n        losses.append(loss.item())"
IN_BAR = LOOP.replace("in loader", "in tqdm(loader)")
MEAN, NO_STEP = "\n    return np.mean(losses)", "loss = criterion(net(x), y)"


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (f"{LOOP}{PUT}{MEAN}", 1),
        (f"{LOOP}\n    losses.append(loss.detach().cpu().numpy())\n    return sum(losses) / len(losses)", 1),
        (f"{IN_BAR}\n    losses.append(loss)\n    return torch.stack(losses).mean()", 1),
        (f"{IN_BAR}{PUT}\n    print(np.average(losses))", 1),
        (f"with torch.no_grad():\n        for x, y in loader: {NO_STEP}{PUT_IN}{MEAN}", 1),
        (f"for i, (x, y) in enumerate(loader): {NO_STEP}{PUT}\n    return torch.tensor(losses).mean()", 1),
        (f"{LOOP}{PUT_IN}{MEAN}", 0),  # in the loop
        (f"total = 0\n    {LOOP}; total = total + loss\n    losses.append(total / 9){MEAN}", 0),
        (f"total = 0\n    {LOOP}; total += loss; part = total / 3\n    losses.append(part){MEAN}", 0),
        (f"seen = []\n    {LOOP}; seen.append(loss); part = sum(seen)\n    losses.append(part){MEAN}", 0),
        (f"{LOOP}{PUT}\n    return losses", 0),
        (f"for _ in range(3):\n        for x, y in loader: {NO_STEP}{PUT_IN}{MEAN}", 0),
        (f"{LOOP}\n        if loss < 1: break{PUT}{MEAN}", 0),
        (f"{LOOP}{PUT}\n    {LOOP}{PUT}{MEAN}", 0),
    ],
)
def test_a_mean_of_what_is_appended_behind_the_loop(lines: str, count: int) -> None:
    assert len(told("EVAL039", APPENDED.replace("LINES", lines))) == count


# ── SAVE013: a best value that the parts of a cross validation share ──

FOLDS = """
best = float("inf")
for fold, (rows, held) in enumerate(KFold(5).split(data)):
    net = make(); opt = torch.optim.Adam(net.parameters())
    BEGUN
    for epoch in range(9):
        loss = fit(net, opt, data[rows]); score = judge(net, data[held])
        LINES
    BEHIND
"""
SAVED = "if score < best: best = score; torch.save(net.state_dict(), 'best.pt')"


@pytest.mark.parametrize(
    ("begun", "lines", "behind", "count"),
    [
        ("", SAVED, "", 1),
        ("", SAVED.replace("'best.pt'", "f'best{fold}.pt'"), "", 1),
        ("", "if best > score: torch.save(net.state_dict(), 'best.pt'); best = score", "", 1),
        ("", "if score <= best: best, kept = score, copy.deepcopy(net.state_dict())", "", 1),
        ("", f"if epoch > 3:\n            {SAVED}", "", 1),
        ("", f"for _ in range(2):\n            {SAVED}", "", 1),
        ("best = float('inf')", SAVED, "", 0),
        ("", SAVED, "best = float('inf')", 0),
        ("", "pass", SAVED, 0),  # the best part of all is what is asked for
        ("", "if score < best: best = score", "", 0),
        ("", SAVED.replace("best = score", "best = best"), "found.append(best)", 1),
        ("least = 9.0", SAVED.replace("best =", "least =").replace("< best", "< least"), "", 0),
    ],
)  # fmt: skip
def test_a_best_value_of_other_folds(begun: str, lines: str, behind: str, count: int) -> None:
    text = FOLDS.replace("BEGUN", begun).replace("LINES", lines).replace("BEHIND", behind)
    assert len(told("SAVE013", text)) == count


def test_a_best_value_of_a_search() -> None:
    assert not told(
        "SAVE013",
        FOLDS.replace("KFold(5).split(data)", "grid")
        .replace("LINES", SAVED)
        .replace("BEHIND", "")
        .replace("BEGUN", ""),
    )
