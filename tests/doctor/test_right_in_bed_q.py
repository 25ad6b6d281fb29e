# SPDX-License-Identifier: Apache-2.0
"""What the twelfth bed's strangers wrote rightly, in several wordings, each beside the fault it was taken for."""

import pytest

from tests.support.told import told
from truestep.doctor.finding import Severity

BUG, RISK, QUESTION, ADVICE = Severity.BUG, Severity.RISK, Severity.QUESTION, Severity.ADVICE


# ── LOSS022: a write into the tensor came between ─────────────────────────────────────────────

YOLO = """
class Yolo(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 1)
    def forward(self, x, target):
        out = self.conv(x)
        BEFORE
        loss = F.binary_cross_entropy(out[:, :2], target)
        AFTER
        return loss
"""
WRITES = [
    "out[:, :2] = torch.sigmoid(out[:, :2])",
    "out = out.reshape(2, 6)\n        out[..., :2] = out[..., :2].sigmoid()",
    "out[:, :2].sigmoid_()",
    "out.sigmoid_()",
    "torch.sigmoid(out, out=out)",
    "out[:, :2].copy_(out[:, :2].sigmoid())",
    "torch.sigmoid_(out)",
    "out = out.view(2, 6)\n        for i in range(2):\n            out[:, i] = torch.sigmoid(out[:, i])",
]


@pytest.mark.parametrize("line", WRITES)
def test_a_tensor_that_was_written_into(line: str) -> None:
    assert told("LOSS022", YOLO.replace("BEFORE", line).replace("AFTER", "pass")) == []


@pytest.mark.parametrize("line", [*WRITES[2:4], WRITES[0], "pass"])
def test_a_tensor_that_is_written_into_later(line: str) -> None:
    assert told("LOSS022", YOLO.replace("BEFORE", "pass").replace("AFTER", line)) == [BUG]


@pytest.mark.parametrize(
    "line",
    [
        "x[:, 0] = torch.sigmoid(x[:, 0])\n        out = self.conv(x)",  # another tensor
        "out[:, :2].sigmoid_()\n        out = self.conv(x)",  # an earlier one
        "out.requires_grad_()",
        "print(out[:, 0])",
    ],
)
def test_a_tensor_that_is_as_the_layer_made_it(line: str) -> None:
    assert told("LOSS022", YOLO.replace("BEFORE", line).replace("AFTER", "pass")) == [BUG]


def test_a_loop_that_makes_the_tensor_anew_writes_into_no_later_one() -> None:
    code = """
        net = nn.Linear(3, 2)
        for x, y in loader:
            out = net(x)
            loss = F.binary_cross_entropy(out, y)
            out[:, 0] = 1
    """
    assert told("LOSS022", code) == [BUG]


# ── GRAD001: a Lightning module that a loop of one's own trains ───────────────────────────────

BY_HAND = """
import pytorch_lightning as pl
class Encoder(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
    def forward(self, x):
        return self.fc(x)
def train(loader, net, other, criterion):
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(3):
        for x, y in loader:
            loss = criterion(net(x), y)
            CLEAR
            loss.backward()
            opt.step()
def main():
    net = Encoder()
    other = nn.Linear(3, 3)
    train([(torch.ones(2, 3), torch.ones(2, 3))], net, other, nn.MSELoss())
main()
"""


@pytest.mark.parametrize("clear", ["net.zero_grad()", "net.fc.zero_grad()", "net.optimizers().zero_grad()"])
@pytest.mark.parametrize("base", ["pl.LightningModule", "nn.Module"])
def test_a_module_clears_its_own_gradients(clear: str, base: str) -> None:
    assert told("GRAD001", BY_HAND.replace("pl.LightningModule", base).replace("CLEAR", clear)) == []


@pytest.mark.parametrize("base", ["pl.LightningModule", "nn.Module"])
@pytest.mark.parametrize("clear", ["pass", "net.eval()", "other.zero_grad()"])
def test_a_module_whose_gradients_nothing_clears(clear: str, base: str) -> None:
    assert told("GRAD001", BY_HAND.replace("pl.LightningModule", base).replace("CLEAR", clear)) == [BUG]


# ── EVAL008, EVAL002: a rate of dropout that nobody in sight sets ─────────────────────────────

PREDICTS = """
import argparse, pickle
class Net(nn.Module):
    def __init__(self, args, rate=0.2, width=8):
        super().__init__()
        self.fc, self.rnn = nn.Linear(4, width), nn.LSTM(8, 8, 2, dropout=0.0)
        self.drop = DROP
    def forward(self, x):
        return self.drop(self.fc(x))
def predict(path, x):
    OPTIONS
    net = MADE
    net.load_state_dict(torch.load(path))
    return net(x).argmax(1)
predict("net.pt", torch.ones(2, 4))
"""
PICKLED = "args = pickle.load(open('args.pkl', 'rb'))"
PARSED = """parser = argparse.ArgumentParser()
    parser.add_argument('--drop-out', type=float, default={})
    args = parser.parse_args()"""


@pytest.mark.parametrize(
    ("drop", "options", "made", "severity"),
    [
        ("nn.Dropout(args.drop_out)", PICKLED, "Net(args)", RISK),
        ("nn.Dropout(p=args['drop_out'])", PICKLED, "Net(args)", RISK),
        ("nn.Dropout2d(rate)", PICKLED, "Net(args, args.rate)", RISK),
        ("nn.Dropout(args.drop_out)", PARSED.format(0), "Net(args)", RISK),
        ("nn.Dropout(rate)", PARSED.format("0.0"), "Net(args, rate=args.drop_out)", RISK),
        ("nn.TransformerEncoderLayer(8, 2, dropout=args.drop_out)", PICKLED, "Net(args)", RISK),
        ("nn.Dropout(args.drop_out)", PARSED.format(0.5), "Net(args)", BUG),
        ("nn.Dropout(rate)", PARSED.format(0.5), "Net(args, rate=args.drop_out)", BUG),
        ("nn.Dropout(rate)", PICKLED, "Net(args)", BUG),
        ("nn.Dropout(rate)", PICKLED, "Net(args, 0.3)", BUG),
        ("nn.Dropout()", PICKLED, "Net(args)", BUG),
        ("nn.BatchNorm1d(width)", PICKLED, "Net(args, width=args.width)", BUG),
        ("nn.Sequential(nn.Dropout(args.drop_out), nn.BatchNorm1d(8))", PICKLED, "Net(args)", BUG),
        ("nn.TransformerEncoderLayer(8, 2)", PICKLED, "Net(args)", BUG),
    ],
)
def test_a_rate_that_nobody_in_sight_sets(drop: str, options: str, made: str, severity: Severity) -> None:
    code = PREDICTS.replace("DROP", drop).replace("OPTIONS", options).replace("MADE", made)
    assert told("EVAL008", code) == [severity]


def test_a_rate_of_0_drops_nothing() -> None:
    for drop, made in (("nn.Dropout(0)", "Net(None)"), ("nn.Dropout(rate)", "Net(None, 0.0)")):
        code = PREDICTS.replace("DROP", drop).replace("OPTIONS", "pass").replace("MADE", made)
        assert told("EVAL008", code) == []


# ── PARAM038: what a library keeps is used under its name ─────────────────────────────────────

KEEPS = """
import pytorch_lightning as pl
class Net(pl.LightningModule):
    def __init__(self, net, alpha=0.1):
        super().__init__()
        KEEP
        self.net = net
    def forward(self, x):
        return self.net(x)
    def training_step(self, batch, i):
        return self.net(batch).mean() USE
"""


@pytest.mark.parametrize(
    "keep",
    [
        "self.save_hyperparameters()",
        "self.save_hyperparameters(ignore=['net'])",
        "self.save_hyperparameters('alpha')",
    ],
)
@pytest.mark.parametrize(
    "use",
    ["* self.hparams.alpha", "* self.hparams['alpha']", "* term(**self.hparams)", "+ penalty(self.hparams)"],
)
def test_an_option_that_a_library_keeps(keep: str, use: str) -> None:
    assert told("PARAM038", KEEPS.replace("KEEP", keep).replace("USE", use)) == []


@pytest.mark.parametrize(
    ("keep", "use"),
    [
        ("self.save_hyperparameters()", ""),
        ("self.save_hyperparameters()", "* self.hparams.lr"),
        ("pass", "* self.hparams.rate"),
        ("print(net)", ""),
    ],
)
def test_an_option_that_nothing_reads(keep: str, use: str) -> None:
    assert told("PARAM038", KEEPS.replace("KEEP", keep).replace("USE", use)) == [RISK]


# ── EVAL003: a model that may have been loaded, and one of several ────────────────────────────

AGENT = """
import copy
class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(3, 3), nn.LeakyReLU(), nn.Softmax(1))
    def forward(self, x):
        return self.fc(x)
class Drops(Plain):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)
    def forward(self, x):
        return self.drop(self.fc(x))
class Agent:
    def __init__(self, deep):
        self.net = MADE
        self.opt = torch.optim.Adam(self.net.parameters(), 1e-3)
    def load(self, path):
        self.net = LOADED
    def act(self, x):
        self.net.eval()
        with torch.no_grad():
            return self.net(x)
    def learn(self, x, y):
        self.opt.zero_grad()
        F.mse_loss(self.net(x), y).backward()
        self.opt.step()
agent = Agent(True)
for x, y in [(torch.ones(2, 3), torch.ones(2, 3))]:
    agent.learn(x, y)
    agent.act(x)
"""


@pytest.mark.parametrize(
    ("made", "loaded", "severities"),
    [
        ("Plain()", "torch.load(path)", []),
        ("Plain()", "torch.load(path, weights_only=False).cuda()", []),
        ("Plain() if deep else nn.Linear(3, 3)", "self.net", []),
        ("copy.deepcopy(Plain())", "torch.load(path)", []),
        ("Drops()", "torch.load(path)", [BUG]),
        ("Drops() if deep else nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.1))", "self.net", [BUG]),
        ("copy.deepcopy(Drops())", "torch.load(path)", [BUG]),
        ("make(deep)", "torch.load(path)", [RISK]),
        ("Plain() if deep else make(deep)", "torch.load(path)", [RISK]),
    ],
)
def test_a_model_that_may_have_been_loaded(made: str, loaded: str, severities: list[Severity]) -> None:
    assert told("EVAL003", AGENT.replace("MADE", made).replace("LOADED", loaded)) == severities


# ── SAVE001: what an object that is called is given ───────────────────────────────────────────

STOPS = """
class Stop:
    def __init__(self):
        self.best = None
    def __call__(self, loss, model, path):
        if self.best is None or loss < self.best:
            self.best = loss
            self.save(model, path)
    def save(self, model, path):
        torch.save(model, path + "/best.pth")
"""
GIVES = """
net = nn.Linear(3, 3)
for x, y in [(torch.ones(2, 3), torch.ones(2, 3))]:
    loss = F.mse_loss(net(x), y)
    state = STATE
    CALL
"""
PLAIN = "\nstop = Stop()\n"
HOLDS = """
class Fit:
    def __init__(self):
        self.stop = Stop()
    def after(self, loss, kept):
        self.stop(loss, kept, "runs")
fit = Fit()
"""
CALLS = [
    (PLAIN, "stop(loss.item(), state, 'runs')"),
    (PLAIN, "stop(loss.item(), path='runs', model=state)"),
    (HOLDS, "fit.after(loss.item(), state)"),
]


@pytest.mark.parametrize(("holds", "call"), CALLS)
@pytest.mark.parametrize(
    ("state", "severities"),
    [
        ("{'epoch': 3, 'net': net.state_dict()}", []),
        ("dict(net=net.state_dict())", []),
        ("net.state_dict()", []),
        ("net", [RISK]),
    ],
)
def test_what_an_object_that_is_called_saves(
    holds: str, call: str, state: str, severities: list[Severity]
) -> None:
    code = GIVES.replace("STATE", state).replace("CALL", call)
    assert told("SAVE001", STOPS + holds + code) == severities
    assert (
        told("SAVE001", {"main.py": "from stop import Stop" + holds + code, "stop.py": STOPS}) == severities
    )


# ── VALUE040: a class that is given a function passes it the object ───────────────────────────

ENVIRONMENT = """
def spec(self, params):
    self.params = params
def plain(params, *, seed=0):
    return params
class Env:
    INSIDE
    def __init__(self):
        KEPT
        CALL
BEHIND
Env()
"""


@pytest.mark.parametrize(
    ("inside", "kept", "call", "behind", "severities"),
    [
        ("spec = spec", "pass", "self.spec(3)", "", []),
        ("spec = spec", "pass", "self.spec(params=3)", "", []),
        ("x = 3", "pass", "self.spec(3)", "Env.spec = spec", []),
        ("plain = staticmethod(plain)", "pass", "self.plain(3)", "", []),
        ("x = 3", "self.plain = plain", "self.plain(3)", "", []),
        ("x = 3", "self.spec = spec", "self.spec(self, 3)", "", []),
        ("spec = spec", "pass", "self.spec()", "", [BUG]),
        ("spec = spec", "pass", "self.spec(3, 4)", "", [BUG]),
        ("x = 3", "self.spec = spec", "self.spec(3)", "", [BUG]),
        ("x = 3", "self.plain = plain", "self.plain(3, 4)", "", [BUG]),
    ],
)
def test_a_function_that_a_class_is_given(
    inside: str, kept: str, call: str, behind: str, severities: list[Severity]
) -> None:
    code = ENVIRONMENT.replace("INSIDE", inside).replace("KEPT", kept).replace("CALL", call)
    assert told("VALUE040", code.replace("BEHIND", behind)) == severities
