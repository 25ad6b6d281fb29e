# SPDX-License-Identifier: Apache-2.0
"""What the twentieth bed's strangers wrote rightly, in several wordings, each beside the fault it was taken for."""

import pytest

from tests.support.told import told
from truestep.doctor.finding import Severity

BUG, RISK, ADVICE = Severity.BUG, Severity.RISK, Severity.ADVICE


# ── GRAD001: another optimizer of the name is made, and cleared ──

REMADE = """
net = nn.Linear(3, 2)
def make_optimizer(rate):
    return torch.optim.SGD(net.parameters(), rate)
optimizer = make_optimizer(0.1); optimizer.zero_grad()
for step, (x, y) in enumerate(loader):
    F.cross_entropy(net(x), y).backward()
    STEP
"""


@pytest.mark.parametrize(
    ("step", "severity"),
    [
        ("optimizer.step(); optimizer = make_optimizer(0.1 / (step + 1)); optimizer.zero_grad()", []),
        ("if step % 2 == 0:\n        optimizer.step(); optimizer = make_optimizer(0.01); optimizer.zero_grad()", []),
        ("optimizer.step(); optimizer = torch.optim.Adam(net.parameters(), 1e-3); optimizer.zero_grad()", []),
        ("optimizer.step(); optimizer = make_optimizer(rate(step)); optimizer.zero_grad(set_to_none=True)", []),
        ("optimizer.step(); optimizer = make_optimizer(0.1 / (step + 1))", [BUG]),
        ("optimizer.step(); other = make_optimizer(0.1 / (step + 1))", [BUG]),
        ("optimizer.step()", [BUG]),
        ("if step % 2 == 0:\n        optimizer.step(); optimizer = make_optimizer(0.01)", [BUG]),
    ],
)  # fmt: skip
def test_optimizer_made_anew_and_cleared(step: str, severity: list[Severity]) -> None:
    assert told("GRAD001", REMADE.replace("STEP", step)) == severity


# ── SAVE013: a dict whose keys all get other tensors is no snapshot ──

AVERAGED = """
net = nn.Linear(3, 2); opt = torch.optim.SGD(net.parameters(), 0.1)
def train(net):
    for x, y in loader:
        opt.zero_grad(); F.cross_entropy(net(x), y).backward(); opt.step()
for round in range(9):
    kept = net.state_dict()
    FILLED
    train(net)
    net.load_state_dict(kept)
"""


@pytest.mark.parametrize(
    ("filled", "severity"),
    [
        ("for key in kept: kept[key] = sum(each[key] for each in clients)", []),
        ("for name in kept.keys():\n        kept[name] = kept[name].clone()", []),
        ("for key, value in kept.items(): kept[key] = value.clone()", []),
        ("for i, each in enumerate(clients):\n        for key in each: kept[key] = each[key] * share[i]", []),
        ("pass", [BUG]),
        ("kept['step'] = round", [BUG]),
        ("for key in kept: print(kept[key])", [BUG]),
        ("other = {}\n    for key in kept: other[key] = kept[key].clone()", [BUG]),
    ],
)
def test_dict_that_is_filled_anew(filled: str, severity: list[Severity]) -> None:
    assert told("SAVE013", AVERAGED.replace("FILLED", filled)) == severity


# ── VALUE040: what an object was given has the name of a function ──

GIVEN = """
from functools import partial
def mask(text, tokenizer):
    return tokenizer(text)
class Texts:
    def __init__(self, mask, rows):
        self.mask = mask; self.rows = rows
    def __getitem__(self, i):
        return CALL
texts = Texts(MADE, rows)
loader = DataLoader(texts)
"""


@pytest.mark.parametrize(
    ("made", "call", "severity"),
    [
        ("partial(mask, tokenizer=tokenizer)", "self.mask(self.rows[i])", []),
        ("masked := partial(mask, tokenizer=tokenizer)", "self.mask(self.rows[i])", []),
        ("lambda text: mask(text, tokenizer)", "self.mask(self.rows[i])", []),
        ("build(mask, tokenizer)", "self.mask(self.rows[i])", []),
        ("partial(mask, tokenizer=tokenizer)", "mask(self.rows[i])", [BUG]),
        ("partial(mask, tokenizer=tokenizer)", "mask(self.rows[i], 1, 2)", [BUG]),
        ("partial(mask, tokenizer=tokenizer)", "self.mask(self.rows[i]) + mask()", [BUG]),
        ("partial(mask, tokenizer=tokenizer)", "mask(self.rows[i], given=1)", [BUG]),
    ],
)
def test_function_that_an_object_was_given(made: str, call: str, severity: list[Severity]) -> None:
    assert told("VALUE040", GIVEN.replace("MADE", made).replace("CALL", call)) == severity


# ── EVAL001: forward gives the loss, and another method predicts ──

PREDICTS = """
class Net(nn.Module):
    def __init__(self, size=3):
        super().__init__()
        self.layer = nn.Linear(size, 2)
    def forward(self, x, y):
        return F.cross_entropy(self.layer(F.dropout(x, 0.1)), y)
    def predict(self, x):
        return self.layer(x).argmax(1)
MADE
opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in loader:
    loss = net(x, y)
    opt.zero_grad(); loss.backward(); opt.step()
net.eval()
for x, y in test_loader:
    print(MEASURED)
"""


@pytest.mark.parametrize(
    ("made", "measured", "severity"),
    [
        ("net = Net()", "net.predict(x)", [ADVICE]),
        ("net = Net(3).cuda()", "net.predict(x).eq(y).sum()", [ADVICE]),
        ("if wide:\n    net = Net(9)\nelse:\n    net = Net(3)", "net.predict(x)", [ADVICE]),
        ("net = Net(size=4)", "(net.predict(x) == y).float().mean()", [ADVICE]),
        ("net = Net()", "net(x, y)", [BUG]),
        ("net = Net(3).cuda()", "net(x, y).item(), net.predict(x)", [BUG]),
        ("if wide:\n    net = Net(9)\nelse:\n    net = Net(3)", "net(x, y)", [BUG]),
        ("net = Net(size=4)", "evaluate(net)", [BUG]),
    ],
)
def test_forward_that_gives_the_loss(made: str, measured: str, severity: list[Severity]) -> None:
    assert told("EVAL001", PREDICTS.replace("MADE", made).replace("MEASURED", measured)) == severity


# ── DATA020: a comment that says what is measured ──


@pytest.mark.parametrize(
    ("above", "severity"),
    [
        ("# saving train metrics; another script is run on test data", []),
        ("# Training set accuracy", []),
        ("# figures of the training data", []),
        ("#train report", []),
        ("# the loader", [RISK]),
        ("pass", [RISK]),
        ("# test data", [RISK]),
        ("print('train')", [RISK]),
    ],
)
def test_training_data_measured_on_purpose(above: str, severity: list[Severity]) -> None:
    text = f"train_loader = DataLoader(train_set, 8, shuffle=True)\n{above}\ntest_loader = DataLoader(train_set, 8)\n"
    assert told("DATA020", text) == severity


# ── GRAD001: a lesson that says what it leaves out ──


@pytest.mark.parametrize(
    ("said", "severity"),
    [
        ("# on purpose there is no zero_grad here", [ADVICE]),
        ("# without optimizer.zero_grad(), to see what happens", [ADVICE]),
        ("# note: zero_grad() is left out", [ADVICE]),
        ("# 故意不写 opt.zero_grad()", [ADVICE]),
        ("# opt.zero_grad()", [BUG]),
        ("#opt.zero_grad(set_to_none=True)", [BUG]),
        ("# for each batch", [BUG]),
        ("pass", [BUG]),
    ],
)
def test_lesson_without_clearing(said: str, severity: list[Severity]) -> None:
    text = f"""
net = nn.Linear(3, 2); opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in loader:
    loss = F.cross_entropy(net(x), y)
    {said}
    loss.backward()
    opt.step()
"""
    assert told("GRAD001", text) == severity


# ── GRAD020: a term that both sides of a GAN make small ──

SHARED = """
generator = nn.Linear(4, 8); discriminator = nn.Linear(8, 1); bce = nn.BCEWithLogitsLoss()
opt_g = torch.optim.Adam(generator.parameters()); opt_d = torch.optim.Adam(discriminator.parameters())
ones = torch.ones(8, 1); zeros = torch.zeros(8, 1)
for real in loader:
    fake = generator(torch.randn(8, 4))
    OWN
    info = F.mse_loss(discriminator(generator(torch.randn(8, 4))), ones)
    LINES
"""
OWN = """opt_g.zero_grad(); bce(discriminator(fake), ones).backward(); opt_g.step()
    opt_d.zero_grad(); loss = bce(discriminator(real), ones) + bce(discriminator(fake.detach()), zeros)
    loss.backward(); opt_d.step()"""


@pytest.mark.parametrize(
    "lines",
    [
        "opt_g.zero_grad(); opt_d.zero_grad(); info.backward(); opt_g.step(); opt_d.step()",
        "opt_d.zero_grad(set_to_none=True); opt_g.zero_grad(); (0.1 * info).backward(); opt_d.step(); opt_g.step()",
        "opt_g.zero_grad(); opt_d.zero_grad()\n    info.backward()\n    clip(info); opt_g.step()\n    opt_d.step()",
        "discriminator.zero_grad(); generator.zero_grad(); info.backward(); opt_g.step(); opt_d.step()",
    ],
)
def test_a_term_for_both_sides(lines: str) -> None:
    assert not told("GRAD020", SHARED.replace("OWN", OWN).replace("LINES", lines))
    assert told("GRAD020", SHARED.replace("OWN", "pass").replace("LINES", lines))  # the only loss of both
    one = lines.replace("opt_d.zero_grad();", "").replace("opt_d.zero_grad()", "")
    if one != lines:  # the critic steps on what is left of the generator's loss
        assert told("GRAD020", SHARED.replace("OWN", OWN).replace("LINES", one))
