# SPDX-License-Identifier: Apache-2.0
"""What users of GANs, agents, averaged weights and plain loops wrote and reading was silent of, in wordings with right twins."""

import textwrap

import pytest

from tests.support.told import told

GAN = """
G, D = nn.Linear(8, 2), nn.Linear(2, 1)
opt_g, opt_d = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
bce = nn.BCEWithLogitsLoss()
for real in DataLoader(torch.randn(100, 2), batch_size=10, shuffle=True):
    z, ones, zeros = torch.randn(10, 8), torch.ones(10, 1), torch.zeros(10, 1)
    fake = G(z)
    BODY
"""
CLEAR, STEPS = "opt_d.zero_grad(); opt_g.zero_grad()\n", "opt_d.step(); opt_g.step()\n"
JUDGE = "loss_d = bce(D(real), ones) + bce(D(fake{}), zeros)\nloss_d.backward({})\n"
MAKE = "loss_g = bce(D(fake), ones)\nloss_g.backward()\n"
APART = "opt_d.step()\nopt_g.zero_grad()\n" + MAKE + "opt_g.step()\n"
KEPT = JUDGE.format("", "retain_graph=True")
BOTH_SIDES = [
    CLEAR + KEPT + MAKE + STEPS,
    CLEAR + KEPT + MAKE + "opt_g.step(); opt_d.step()\n",
    KEPT + MAKE + STEPS + CLEAR,
    CLEAR
    + "a, b = D(real), D(fake)\nloss_d = bce(a, ones) + bce(b, zeros)\nloss_d.backward(retain_graph=True)\n"
    + MAKE
    + STEPS,
    CLEAR + "(bce(D(real), ones) + bce(D(G(z)), zeros)).backward()\nbce(D(G(z)), ones).backward()\n" + STEPS,
    CLEAR
    + "out = D(torch.cat([real, fake]))\nbce(out, torch.cat([ones, zeros])).backward(retain_graph=True)\n"
    + MAKE
    + STEPS,
    CLEAR + "bce(D(real), ones).backward()\nbce(D(fake), zeros).backward(retain_graph=True)\n" + MAKE + STEPS,
    CLEAR
    + "(D(fake).mean() - D(real).mean()).backward(retain_graph=True)\n(-D(fake).mean()).backward()\n"
    + STEPS,
    CLEAR + JUDGE.format(".detach()", "") + MAKE + STEPS,
]
ONE_SIDE = [
    "opt_d.zero_grad()\n" + JUDGE.format(".detach()", "") + APART,
    "opt_d.zero_grad()\n" + KEPT + APART,
    (
        "opt_d.zero_grad()\nbce(D(real) - D(fake.detach()), ones).backward()\nopt_d.step()\nopt_g.zero_grad()\n"
        "bce(D(fake) - D(real), ones).backward(retain_graph=True)\nF.mse_loss(fake, real).backward()\nopt_g.step()\n"
    ),
    "opt_d.zero_grad()\nwith torch.no_grad():\n    fake = G(z)\n" + JUDGE.format("", "") + "opt_d.step()\n",
    "opt_g.zero_grad()\n" + MAKE + "opt_g.step()\nopt_d.zero_grad()\n" + JUDGE.format(".detach()", "") + "opt_d.step()\n",
    CLEAR + JUDGE.format(".detach()", "") + "D.requires_grad_(False)\n" + MAKE + "D.requires_grad_(True)\n" + STEPS,
    CLEAR + JUDGE.format("", "inputs=list(D.parameters()), retain_graph=True")
    + "bce(D(fake), ones).backward(inputs=list(G.parameters()))\n" + STEPS,
    CLEAR + "back = Reverse.apply(fake)\n(bce(D(real), ones) + bce(D(back), zeros)).backward()\n" + STEPS,
]  # fmt: skip

DRAWN = """
G, D = nn.Linear(8, 2), nn.Linear(2, 1)
opt_g, opt_d = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
loader = DataLoader(torch.randn(100, 2), batch_size=10, shuffle=True)
def inf_train_gen():
    while True:
        for x in loader:
            yield x
def data_gen(n):
    return torch.randn(n, 2)
def generate(z):
    x = G(z)
    return x
noise_gen, data = lambda n: torch.randn(n, 2), inf_train_gen()
for it in range(60):
    for _ in range(5):
        BODY
        opt_d.zero_grad()
        d_loss = D(fake).mean() - D(real).mean()
        d_loss.backward()
        opt_d.step()
    g_loss = -D(G(torch.randn(10, 8))).mean()
    g_loss.backward()
    opt_g.step()
    opt_g.zero_grad()
"""
CUT = "with torch.no_grad():\n    fake = G(torch.randn(10, 8))\n"
GENERATED = [
    "real = next(data)\nfake = G(torch.randn(10, 8))",
    "real = data_gen(10)\nfake = generate(torch.randn(10, 8))",
    "real, make = next(iter(loader)), lambda z: G(z)\nfake = make(torch.randn(10, 8))",
]
GIVEN = [
    CUT + "real = next(data)",
    CUT + "real = inf_train_gen().__next__()",
    CUT + "real = data_gen(10)",
    CUT + "real = noise_gen(10)",
    CUT + "from mine import train_gen\nbatches = train_gen(loader)\nreal = next(batches).requires_grad_()",
    CUT + "gen = numpy.random.default_rng(0)\nreal = torch.from_numpy(gen.normal(size=(10, 2))).float()",
    CUT + "gen = (x * 2 for x in inf_train_gen())\nreal = next(gen)",
]

LOOP = """
model = nn.Linear(4, 3)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
sched = torch.optim.lr_scheduler.StepLR(opt, 5)
best, wait, patience = 1e9, 0, 5
def train(loader, learns=True):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        if learns:
            opt.zero_grad()
            loss.backward()
            opt.step()
if __name__ == "__main__":
    train_loader = DataLoader(a, batch_size=8, shuffle=True)
    val_loader = DataLoader(b, batch_size=8)
    for epoch in range(20):
        for x, y in train_loader:
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        BODY
"""
LATE = ["sched.step(epoch)", "sched.step(epoch=epoch)"]
IN_TIME = ["sched.step()", "sched.step(epoch + 1)", "sched.step(test(model))"]
LEARNED = [
    "for x, y in val_loader:\n    loss = F.cross_entropy(model(x), y)\n    opt.zero_grad()\n    loss.backward()\n    opt.step()",
    "for i, (x, y) in enumerate(val_loader):\n    opt.zero_grad()\n    F.cross_entropy(model(x), y).backward()\n    opt.step()",
]
MEASURED = [
    "train(val_loader, learns=False)",
    "for x, y in val_loader:\n    loss = F.cross_entropy(model(x), y)",
    "for x, y in val_loader:\n    if model.training:\n        F.cross_entropy(model(x), y).backward()\n        opt.step()",
]

TOKENS = """
def step(net, opt, x, y, mask, counts):
    out = net(x).transpose(1, 2)
    BODY
    total.mean().backward()
    opt.step()
    opt.zero_grad()
"""
EACH = 'each = F.cross_entropy(out, y, ignore_index=0, reduction="none")\n'
COUNTED = [
    EACH + "total = each.mean(1)",
    EACH + "total = each.view(len(x), -1).mean(dim=-1)",
    'each = nn.CrossEntropyLoss(ignore_index=0, reduction="none")(out, y)\ntotal = each.mean(1)',
    'total = (F.cross_entropy(out, y, reduction="none") * mask).mean(1)',
]
LEFT_OUT = [
    EACH + "total = each.sum(1) / (y != 0).sum(1)",
    EACH + "total = each[y != 0].mean()",
    EACH + "kept = each[y != 0]\ntotal = kept.mean()",
    EACH + "total = each.mean() * (y.numel() / (y != 0).sum())",
    'total = F.cross_entropy(out, y, reduction="none").mean(1)',
    'total = (F.cross_entropy(out, y, reduction="none") * counts[y]).mean(1)',
    "total = F.cross_entropy((x * mask).mean(1), y)",
]


def filled(text: str, body: str) -> str:
    indent = next(line for line in text.splitlines() if "BODY" in line).partition("BODY")[0]
    return text.replace(indent + "BODY", textwrap.indent(body, indent))


def texts(text: str, *bodies: list[str]) -> list[tuple[str, bool]]:
    wrong, right = ([filled(text, each) for each in part] for part in bodies)
    return [*((each, True) for each in wrong), *((each, False) for each in right)]


CASES = {
    "LOSS036": texts(TOKENS, COUNTED, LEFT_OUT),
    "SCHED001": texts(LOOP, LATE, IN_TIME),
    "DATA020": texts(LOOP, LEARNED, MEASURED),
    "GRAD020": [*texts(GAN, BOTH_SIDES, ONE_SIDE), *texts(DRAWN, GENERATED, GIVEN)],
}  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text", "is_wrong"),
    [(code, *each) for code, cases in CASES.items() for each in cases],
    ids=[f"{code}-{number}" for code, cases in CASES.items() for number in range(len(cases))],
)
def test_told_and_not(code: str, text: str, is_wrong: bool) -> None:
    assert bool(told(code, text)) == is_wrong
