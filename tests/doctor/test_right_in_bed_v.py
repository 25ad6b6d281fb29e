# SPDX-License-Identifier: Apache-2.0
"""What the seventeenth bed's strangers wrote rightly, in several wordings, each beside the fault it was taken for."""

import pytest

from tests.support.told import told
from truestep.doctor.finding import Severity

BUG, RISK, QUESTION, ADVICE = Severity.BUG, Severity.RISK, Severity.QUESTION, Severity.ADVICE


# ── DEV006: a branch of what torch passes over where there is no GPU ──


@pytest.mark.parametrize(
    ("test", "body", "severities"),
    [
        ("torch.cuda.is_available", "torch.cuda.manual_seed(seed)", [ADVICE]),
        ("torch.cuda.is_available", "torch.cuda.manual_seed_all(seed)", [ADVICE]),
        (
            "torch.cuda.is_available",
            "torch.cuda.manual_seed(seed); torch.cuda.manual_seed_all(seed)",
            [ADVICE],
        ),
        (
            "torch.cuda.is_available",
            "torch.cuda.manual_seed(seed); torch.backends.cudnn.deterministic = True",
            [ADVICE],
        ),
        ("torch.cuda.is_available", "torch.backends.cudnn.benchmark = True", [ADVICE]),
        ("cuda and torch.cuda.is_available", "torch.cuda.seed()", [ADVICE]),
        ("torch.cuda.is_available", "torch.cuda.empty_cache()", [ADVICE]),
        ("torch.cuda.is_available", "cuda.manual_seed(seed)", [ADVICE]),
        ("torch.cuda.is_available()", "torch.cuda.manual_seed(seed)", []),
        (
            "torch.cuda.is_available",
            "torch.cuda.manual_seed(seed)\n    else:\n        torch.manual_seed(seed)",
            [BUG],
        ),
        ("torch.cuda.is_available", "torch.cuda.manual_seed(seed); device = 'cuda'", [BUG]),
        ("torch.cuda.is_available", "torch.cuda.set_device(0)", [BUG]),
        ("torch.cuda.is_available", "torch.cuda.synchronize()", [BUG]),
        ("not torch.cuda.is_available", "raise SystemError", [BUG]),
        ("torch.cuda.is_available", "net.cuda()", [BUG]),
    ],
)
def test_branch_that_does_nothing_without_a_gpu(test: str, body: str, severities: list[Severity]) -> None:
    text = f"from torch import cuda\ndef seeded(seed, net):\n    torch.manual_seed(seed)\n    if {test}:\n        {body}\n"
    assert told("DEV006", text) == severities


# ── DEV005: what a model gave is where its input is; only a batch is moved in earnest ──

MOVED = """
device = "cuda" if torch.cuda.is_available() else "cpu"
net = nn.Linear(4, 4)MADE
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for data, label in DataLoader(rows, shuffle=True):
    BEFORE
    output = net(GIVEN)
    LINE
    loss = F.cross_entropy(output, label)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("made", "before", "given", "line", "severities"),
    [
        (
            ".to(device)",
            "data = data.to(device); label = label.to(device)",
            "data",
            "output.to(device)",
            [ADVICE],
        ),
        ("; net.to(device)", "data = data.to(device)", "data", "output.to(device)", [ADVICE]),
        (
            "; net.to(device)",
            "data, label = data.to(device), label.to(device)",
            "data",
            "output.to(device)",
            [ADVICE],
        ),
        ("; net = net.to(device)", "pass", "data.to(device)", "output.to(device)", [ADVICE]),
        (".to(device)", "image = data.to(device)", "image", "output.to(device)", [ADVICE]),
        (".cuda()", "data = data.cuda()", "data", "output.cuda()", [ADVICE]),
        (".to(device)", "image = data", "image.to(device)", "output.to(device)", [ADVICE]),
        (".to(device)", "data = data.to(device)", "data", "label.to(device)", [RISK]),
        (".to(device)", "pass", "data", "data.to(device)", [RISK]),
        ("; net.to(device)", "pass", "data", "output.to(device)", [ADVICE]),
        (".to(device)", "data = data.to(device)", "data", "output.to('cpu')", [ADVICE]),
        (".to(device)", "data = data.to(device)", "data", "output.cpu()", [RISK]),
        (".to(device)", "data = data.to(device)", "data", "output.view(-1)", [RISK]),
        (".cuda()", "data = data.cuda()", "data", "output.to(torch.float64)", [RISK]),
    ],
)
def test_move_to_where_it_is(
    made: str, before: str, given: str, line: str, severities: list[Severity]
) -> None:
    text = MOVED.replace("MADE", made).replace("BEFORE", before).replace("GIVEN", given).replace("LINE", line)
    assert told("DEV005", text) == severities


# ── SCHED001: a schedule of rounds of which not each one trains, and a loop for the torch that wants the schedule first ──

ROUNDS = """
net = nn.Linear(4, 2)
opt = torch.optim.Adam(net.parameters())
schedule = torch.optim.lr_scheduler.LambdaLR(opt, rate)
LINES
"""
TRAIN = "loss = net(torch.stack(random.sample(seen, 8))).pow(2).mean(); opt.zero_grad(); loss.backward(); opt.step()"


@pytest.mark.parametrize(
    ("lines", "severities"),
    [
        (f"for t in range(9999):\n    schedule.step()\n    if t > 1000 and t % 4 == 0:\n        {TRAIN}", []),
        (
            f"for t in range(9999):\n    seen.append(env.step(0))\n    schedule.step()\n    if len(seen) > 9:\n        {TRAIN}",
            [],
        ),
        (
            f"for t in count():\n    schedule.step()\n    if not memory.can_sample(32):\n        continue\n    {TRAIN}",
            [],
        ),
        (f"t = 0\nwhile t < 9999:\n    schedule.step()\n    t += 1\n    if t >= start:\n        {TRAIN}", []),
        (
            f"def update(t):\n    schedule.step()\n    if t > 9:\n        {TRAIN}\nfor t in range(999):\n    act()\n    update(t)",
            [],
        ),
        (f"for t in range(9999):\n    schedule.step()\n    {TRAIN}", [RISK]),
        (f"for t in range(9999):\n    schedule.step()\n    if t > 900:\n        break\n    {TRAIN}", [RISK]),
        (
            "for x in loader:\n    schedule.step()\n    loss = net(x).mean()\n    if loss > 9:\n        continue\n    UPDATE",
            [ADVICE],
        ),
        (f"for t in range(9999):\n    if t > 1000:\n        schedule.step()\n        {TRAIN}", []),
        (f"for epoch in range(9):\n    schedule.step()\n    for x in loader:\n        {TRAIN}", [RISK]),
        (
            "for x in loader:\n    schedule.step()\n    loss = net(x).mean()\n    if loss < 9:\n        UPDATE",
            [ADVICE],
        ),
        (
            f"for epoch in range(9):\n    schedule.step()\n    for x in loader:\n        if len(x) > 1:\n            {TRAIN}",
            [RISK],
        ),
    ],
)
def test_schedule_of_rounds(lines: str, severities: list[Severity]) -> None:
    lines = lines.replace("UPDATE", "opt.zero_grad(); loss.backward(); opt.step()")
    assert (
        told("SCHED001", "import random\nfrom itertools import count\n" + ROUNDS.replace("LINES", lines))
        == severities
    )


@pytest.mark.parametrize(
    ("inner", "behind", "severities"),
    [
        ("total += loss.data[0]", "pass", [ADVICE]),
        ("print(loss.data[0])", "pass", [ADVICE]),
        ("meter.update(loss.data[0], len(x))", "pass", [ADVICE]),
        ("total += loss.item()", "pass", [RISK]),
        ("total += x.data[0].sum()", "pass", [RISK]),
        ("pass", "print(last_loss.data[0])", [RISK]),
    ],
)
def test_loop_for_an_old_torch(inner: str, behind: str, severities: list[Severity]) -> None:
    lines = (
        "total = 0\nfor epoch in range(9):\n    schedule.step()\n    for x in loader:\n        opt.zero_grad()\n"
        f"        loss = net(x).mean()\n        loss.backward()\n        opt.step()\n        {inner}\n{behind}"
    )
    assert told("SCHED001", ROUNDS.replace("LINES", lines)) == severities


# ── VALUE017: the last arm of a chain that no other value comes to ──

MADE = """
class Net(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell_type = cell
        if self.cell_type == "lstm":
            self.cell = nn.LSTM(4, 4)
        elif self.cell_type == "gru":
            self.cell = nn.GRU(4, 4)
        elif self.cell_type == "rnn":
            self.cell = nn.RNN(4, 4)
    def forward(self, x):
        if self.cell_type == "lstm":
            out, (h, c) = self.cell(x)
        elif TEST:
            out, h = self.cell(x)
        MORE
        return out
"""


@pytest.mark.parametrize(
    ("test", "more", "severities"),
    [
        ('self.cell_type == "rnn" or "gru"', "pass", [ADVICE]),
        ('self.cell_type == "gru" or "rnn"', "pass", [ADVICE]),
        ('(self.cell_type == "gru") or "rnn"', "h = None", [ADVICE]),
        ('self.cell_type in ("gru", "rnn")', "pass", []),
        ('self.cell_type == "gru" or self.cell_type == "rnn"', "pass", []),
        ('self.cell_type == "gru" or "tcn"', "pass", [BUG]),
        ('self.cell_type == "gru" or "rnn"', "if self.cell_type == 'tcn':\n            out = x", [BUG]),
        ('self.kind == "gru" or "rnn"', "pass", [BUG]),
        (
            'self.cell_type == "rnn" or "gru"',
            "pass\n        if x.dim() == 2 or 'flat':\n            out = x",
            [ADVICE, BUG],
        ),
    ],
)
def test_last_arm_of_what_is_known(test: str, more: str, severities: list[Severity]) -> None:
    assert told("VALUE017", MADE.replace("TEST", test).replace("MORE", more)) == severities


def test_arm_before_an_else_is_told() -> None:
    text = MADE.replace("TEST", 'self.cell_type == "rnn" or "gru"').replace(
        "        MORE", "        else:\n            out = x"
    )
    assert told("VALUE017", text) == [BUG]


# ── SAVE013: what is given back and dropped ──

BEST = """
def fit(net, opt, loader):
    best, best_loss = None, math.inf
    for x, y in loader:
        opt.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
        if loss.item() < best_loss:
            best, best_loss = net.state_dict(), loss.item()
            torch.save(best, "best.pt")
    BEHIND
def main():
    net = nn.Linear(4, 2)
    opt = torch.optim.Adam(net.parameters())
    CALL
main()
"""


@pytest.mark.parametrize(
    ("behind", "call", "severities"),
    [
        ("return best", "fit(net, opt, loader)", []),
        ("return net, best, best_loss", "fit(net, opt, loader)", []),
        (
            "return (best, best_loss)",
            "fit(net, opt, loader)\n    torch.save(net.state_dict(), 'last.pt')",
            [],
        ),
        ("return [best_loss, best]", "for fold in range(3):\n        fit(net, opt, loader)", []),
        ("if best is None:\n        return None\n    return best", "fit(net, opt, loader)", [BUG]),
        ("return net, best", "net, best = fit(net, opt, loader)", [BUG]),
        ("return best", "net.load_state_dict(fit(net, opt, loader))", [BUG]),
        ("return best", "return fit(net, opt, loader)", [BUG]),
        ("net.load_state_dict(best)\n    return best", "fit(net, opt, loader)", [BUG]),
        ("return best", "fit(net, opt, loader)\n    best = fit(net, opt, loader)", [BUG]),
    ],
)
def test_best_weights_that_are_dropped(behind: str, call: str, severities: list[Severity]) -> None:
    assert (
        told("SAVE013", "import math\n" + BEST.replace("BEHIND", behind).replace("CALL", call)) == severities
    )


# ── PARAM031: a layer that nothing reads ──


@pytest.mark.parametrize(
    ("made", "used", "severities"),
    [
        ("table = nn.Embedding(21, 8)", "self.table(x)", [ADVICE]),
        ("fc = nn.Linear(8, 8)", "self.table(x)", [ADVICE]),
        ("norm = nn.BatchNorm1d(8)", "self.table(x)", [ADVICE]),
        ("table = nn.Embedding(21, 8).to(x.device)", "self.table(x)", [BUG]),
        ("table = nn.Embedding(21, 8)", "table(x)", [BUG]),
        ("fc = nn.Linear(8, 8)", "fc(self.table(x))", [BUG]),
        ("norm = nn.BatchNorm1d(8)", "norm(self.table(x))", [RISK]),
        ("y = nn.Linear(8, 8)(self.table(x))", "y", [BUG]),
    ],
)
def test_layer_that_nothing_reads(made: str, used: str, severities: list[Severity]) -> None:
    text = (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.table = nn.Embedding(21, 8)\n"
        f"    def forward(self, x):\n        {made}\n        return {used}\n"
    )
    assert told("PARAM031", text) == severities


# ── VALUE040: a function whose own call is commented out ──


@pytest.mark.parametrize(
    ("behind", "severities"),
    [
        ("# test()", [ADVICE]),
        ("#test()", [ADVICE]),
        ("if __name__ == '__main__':\n    pass\n    # test()", [ADVICE]),
        ("## test()  # passes", [ADVICE]),
        ("test()", [BUG]),
        ("if __name__ == '__main__':\n    test()", [BUG]),
        ("# a test of it", [BUG]),
        ("print(test)\n# test()", [BUG]),
        ("def more():\n    test()\n# test()", [BUG]),
        ("# other_test()", [BUG]),
        ("pass", [BUG]),
    ],
)
def test_function_whose_call_is_commented_out(behind: str, severities: list[Severity]) -> None:
    made = "def small(classes, channels=3):\n    return nn.Linear(channels, classes)\n"
    text = f"{made}def test():\n    net = small()\n    return net(x)\n{behind}\n"
    assert told("VALUE040", text) == severities
    assert told("VALUE040", {"main.py": text, "other.py": "def test():\n    pass\ntest()\n"}) == severities


# ── SAVE005: an optimizer by another name ──

RESUMED = """
class Training:
    def __init__(self, path):
        self.model = nn.Linear(4, 2)
        self.trainer = MADE
        kept = torch.load(path)
        self.start = kept["epoch"]
        self.model.load_state_dict(kept["model"])
        LOAD
    def fit(self, loader):
        for epoch in range(self.start, 9):
            for x, y in loader:
                self.trainer.zero_grad()
                F.cross_entropy(self.model(x), y).backward()
                self.trainer.step()
            torch.save({"epoch": epoch + 1, "model": self.model.state_dict()MORE}, "last.pt")
"""
ADAM = "torch.optim.Adam(self.model.parameters())"


@pytest.mark.parametrize(
    ("made", "load", "more", "severities"),
    [
        (ADAM, 'self.trainer.load_state_dict(kept["trainer"])', ', "trainer": self.trainer.state_dict()', []),
        (ADAM, "pass", ', "trainer": self.trainer.state_dict()', []),
        ("torch.optim.SGD(self.model.parameters(), 0.1)", "pass", ', "sgd": self.trainer.state_dict()', []),
        ("torch.optim.AdamW(self.model.parameters())", "pass", ', "t": {"t": self.trainer.state_dict()}', []),
        (ADAM, "pass", "", [RISK]),
        (ADAM, "pass", ', "head": self.model.state_dict()', [RISK]),
        (ADAM, "pass", ', "rate": 0.1', [RISK]),
    ],
)
def test_optimizer_by_another_name(made: str, load: str, more: str, severities: list[Severity]) -> None:
    text = RESUMED.replace("MADE", made).replace("LOAD", load).replace("MORE", more)
    assert told("SAVE005", text) == severities


# ── EVAL001: noise that a function draws ──

SAMPLER = """
noise_like = lambda shape: torch.randn(shape)
def drawn(shape, repeat=False):
    first = lambda: torch.randn((1, *shape[1:])).repeat(shape[0], 1)
    other = lambda: torch.randn(shape)
    return first() if repeat else other()
def scaled(shape):
    return torch.randn(shape) * 0.1
class Sampler(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)
    def forward(self, x):
        return self.net(x)
    def sample(self, x, rate=0.1, heat=1.0):
        noise = MADE
        return self.net(x) + F.dropout(noise, p=rate)
"""


@pytest.mark.parametrize(
    ("made", "severities"),
    [
        ("torch.randn_like(x) * heat", []),
        ("drawn(x.shape) * heat", []),
        ("heat * drawn(x.shape, True)", []),
        ("noise_like(x.shape) * heat", []),
        ("noise_like(x.shape)", []),
        ("scaled(x.shape) / heat", []),
        ("self.net(x) * heat", [RISK]),
        ("self(x)", [RISK]),
        ("self.net(x) * torch.rand(4)", [RISK]),
        ("x * heat", [RISK]),
    ],
)
def test_noise_that_a_function_draws(made: str, severities: list[Severity]) -> None:
    assert told("EVAL001", SAMPLER.replace("MADE", made)) == severities


# ── VALUE012: an encoder and its decoder ──

PARTS = """
class Encoder(nn.Module):
    def __init__(self, input_size, hidden_size, layers=1):
        super().__init__()
        self.rnn = nn.LSTM(input_size, hidden_size, layers)
class Decoder(nn.Module):
    def __init__(self, input_size, hidden_size, layers=1):
        super().__init__()
        self.rnn = nn.LSTM(input_size, hidden_size, layers)
def sizes(input_size, hidden_size):
    return [input_size, hidden_size]
class Both(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        FIRST
        SECOND
"""


@pytest.mark.parametrize(
    ("first", "second", "severities"),
    [
        (
            "self.encoder = Encoder(input_size, hidden_size)",
            "self.decoder = Decoder(hidden_size, input_size)",
            [],
        ),
        (
            "self.decoder = Decoder(hidden_size, input_size)",
            "self.encoder = Encoder(input_size, hidden_size, 2)",
            [],
        ),
        (
            "encoder = Encoder(input_size, hidden_size)",
            "self.net = nn.Sequential(encoder, Decoder(hidden_size, input_size))",
            [],
        ),
        (
            "self.encoder = Encoder(input_size, hidden_size)",
            "self.decoder = Encoder(hidden_size, input_size)",
            [],
        ),
        (
            "self.sizes = sizes(input_size, hidden_size)",
            "self.decoder = Decoder(hidden_size, input_size)",
            [RISK],
        ),
        ("self.size = hidden_size", "self.encoder = Encoder(hidden_size, input_size)", [RISK]),
        (
            "self.encoder = Encoder(hidden_size, input_size)",
            "self.decoder = Decoder(hidden_size, input_size)",
            [RISK, RISK],
        ),
    ],
)
def test_encoder_and_decoder(first: str, second: str, severities: list[Severity]) -> None:
    assert told("VALUE012", PARTS.replace("FIRST", first).replace("SECOND", second)) == severities


# ── VALUE013: what comes again, and what has come in by the other arguments ──

GIVEN = """
import argparse
class Options:
    def parse(self):
        return argparse.ArgumentParser().parse_args()
    def init(self):
        return self.parse()
parser = argparse.ArgumentParser()
def options():
    return parser.parse_args()
def built(a):
    return nn.Linear(a, a)
def main(first, second=None):
    LINE
    net = built(first.size)
    net.load_state_dict(second)
CALL
"""


@pytest.mark.parametrize(
    ("line", "call", "severities"),
    [
        ("first = Options().init()", "given = Options().parse()\nmain(given)", []),
        ("first = Options().parse()", "main(Options().parse())", []),
        ("first = parser.parse_args()", "main(parser.parse_args())", []),
        ("first = options()", "first = options()\nmain(first)", []),
        ("first = built(4)", "second = torch.load(first)\nmain(first, second)", []),
        ("first = built(4)", "second, size = read(first)\nmain(first, second)", []),
        ("first = built(4)", "first = options()\nmain(first)", [RISK]),
        ("first = Options().init()", "main(built(4))", [RISK]),
        ("first = torch.device('cpu')", "main(torch.device('cuda'))", [RISK]),
        ("first = built(4)", "main(built(8))", [RISK]),
        ("first = built(4)", "second = torch.load('net.pt')\nmain(first, second)", [RISK]),
    ],
)
def test_argument_that_comes_again(line: str, call: str, severities: list[Severity]) -> None:
    assert told("VALUE013", GIVEN.replace("LINE", line).replace("CALL", call)) == severities


# ── DATA002: shapes of whole batches ──

PIPELINE = """
import argparse
args = argparse.ArgumentParser().parse_args()
LINES
net = nn.Linear(4, 2)
val_loader = DataLoader(rows, batch_size=SIZE, drop_last=True)
net.eval()
with torch.no_grad():
    for x, y in val_loader:
        total += F.cross_entropy(net(x), y)
print(total / len(val_loader))
"""


@pytest.mark.parametrize(
    ("lines", "size", "severities"),
    [
        ("shape = [args.batch, 3, 32, 32]", "args.batch", []),
        ("shapes = {'input0': [args.batch, 3, 299, 299], 'target': [args.batch]}", "args.batch", []),
        ("shapes = [(args.batch, 512), (args.batch,)]", "args.batch", []),
        ("shape = tuple([args.eval_batch] + rest[1:])", "args.eval_batch", []),
        ("size = args.batch\nshape = (size, 3)", "size", []),
        ("shape = [args.batch, 3, 32, 32]", "args.eval_batch", [RISK]),
        ("summary(net, (args.batch, 3, 32, 32))", "args.batch", [RISK]),
        ("sizes = [args.batch, args.eval_batch]", "args.batch", [RISK]),
        ("sizes = [args.batch]", "args.batch", [RISK]),
        ("shape = [3, 32, 32]", "args.batch", [RISK]),
        ("shape = [32, 3, 8]", "32", [RISK]),
    ],
)
def test_shape_of_whole_batches(lines: str, size: str, severities: list[Severity]) -> None:
    assert told("DATA002", PIPELINE.replace("LINES", lines).replace("SIZE", size)) == severities


# ── SAVE001: a state beside it ──


@pytest.mark.parametrize(
    ("beside", "severities"),
    [
        ("torch.save(net.state_dict(), 'state.pt')", [ADVICE]),
        ("torch.save({'epoch': 1, 'net': net.state_dict()}, 'state.pt')", [ADVICE]),
        ("kept = {'net': net.state_dict()}\n        torch.save(kept, 'state.pt')", [ADVICE]),
        ("torch.save(dict(net=net.state_dict()), 'state.pt')", [ADVICE]),
        ("pass", [RISK]),
        ("torch.save(other.state_dict(), 'state.pt')", [RISK]),
        ("torch.save({'epoch': 1}, 'state.pt')", [RISK]),
        ("if epoch == 1:\n            torch.save(net.state_dict(), 'state.pt')", [RISK]),
    ],
)
def test_state_beside_a_whole_model(beside: str, severities: list[Severity]) -> None:
    lines = f"net = nn.Linear(4, 2)\nfor epoch in range(9):\n    if best:\n        {beside}\n        torch.save(net, 'net.pt')\n"
    assert told("SAVE001", lines) == severities


# ── PARAM038: an option that no call gives, one that a comment says is idle, and one of a place ──

IDLE = """
class Net(nn.Module):
    # NOTE
    def __init__(self, size, OPTION):
        super().__init__()
        self.fc = nn.Linear(size, 2)
    def forward(self, x):
        return self.fc(x)
CALLS
"""


@pytest.mark.parametrize(
    ("option", "note", "calls", "severities"),
    [
        ("dropout=0.1", "", "net = Net(4)", [ADVICE]),
        ("dropout=0.0", "", "", [ADVICE]),
        ("alpha=0.25", "", "nets = [Net(4), Net(8)]", [ADVICE]),
        ("dropout=0.1", "FIXME: dropout is not working now", "net = Net(4, 0.2)", [ADVICE]),
        ("dropout", "TODO use dropout", "net = Net(4, 0.2)", [ADVICE]),
        ("use_gpu=True", "", "net = Net(4, use_gpu=False).cuda()", [ADVICE]),
        ("cuda=False", "", "net = Net(4, True)", [ADVICE]),
        ("dropout=0.1", "", "net = Net(4, 0.2)", [RISK]),
        ("dropout=0.1", "", "net = Net(4, dropout=0.2)\nother = Net(4)", [RISK]),
        ("dropout=0.1", "", "", [RISK]),
        ("dropout=0.1", "with dropout", "net = Net(4, 0.2)", [RISK]),
        ("bias=True", "", "net = Net(4, bias=False)", [RISK]),
    ],
)
def test_option_that_is_idle(option: str, note: str, calls: str, severities: list[Severity]) -> None:
    text = IDLE.replace("OPTION", option).replace("NOTE", note).replace("CALLS", calls)
    assert told("PARAM038", text) == severities


# ── LOSS011: rows that are written out ──

TOY = """
ROWS
w = torch.zeros((2, 1), requires_grad=True)
opt = torch.optim.SGD([w], lr=1)
for epoch in range(9):
    p = torch.sigmoid(x.matmul(w))
    loss = -(y * torch.log(p)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
SIX = "[[1, 2], [2, 3], [3, 1], [4, 3], [5, 3], [6, 2]]"


@pytest.mark.parametrize(
    ("rows", "severities"),
    [
        (f"x = torch.FloatTensor({SIX})\ny = torch.FloatTensor([[0], [0], [0], [1], [1], [1]])", [ADVICE]),
        (
            f"x = torch.tensor({SIX})\ny_data = [[0], [0], [0], [1], [1], [1]]\ny = torch.tensor(y_data)",
            [ADVICE],
        ),
        ("x = read()\ny = torch.as_tensor([[0.0], [1.0]])", [ADVICE]),
        ("x, y = read()", [RISK]),
        (f"x = torch.tensor({SIX})\ny = torch.tensor(read())", [RISK]),
        (f"x = read()\ny = torch.tensor([{', '.join(['[1.0]'] * 40)}])", [RISK]),
    ],
)
def test_logarithm_over_rows_that_are_written_out(rows: str, severities: list[Severity]) -> None:
    assert told("LOSS011", TOY.replace("ROWS", rows)) == severities


# ── EVAL043: means of a function, in another file or weighted, over the number of examples ──

MEANS = """
import losses
loader = DataLoader(rows, batch_size=8, shuffle=True)
criterion = nn.MSELoss()
def hinted(a, b):
    return 0.5 * F.mse_loss(a, b)
def fit(net, opt):
    total = 0.0
    for x, y in loader:
        opt.zero_grad()
        loss = MADE
        loss.backward()
        opt.step()
        total += ADDED
    return total / COUNT
"""
OTHERS = """
def hint(a, b):
    return F.mse_loss(a, b)
def both(a, b):
    return F.mse_loss(a, b) + 0.1 * F.l1_loss(a, b)
def summed(a, b):
    return F.mse_loss(a, b, reduction="sum")
"""
ALL = "len(loader.dataset)"


@pytest.mark.parametrize(
    ("made", "added", "count", "severities"),
    [
        ("losses.hint(net(x), y)", "loss.item()", ALL, [RISK]),
        ("losses.both(net(x), y)", "loss.item()", ALL, [RISK]),
        ("hinted(net(x), y)", "loss.item()", ALL, [RISK]),
        ("0.5 * criterion(net(x), y)", "loss.item()", ALL, [RISK]),
        ("criterion(net(x), y) + hinted(net(x), y)", "float(loss)", ALL, [RISK]),
        ("criterion(net(x), y)", "loss.item()", ALL, [RISK]),
        ("losses.summed(net(x), y)", "loss.item()", ALL, []),
        ("losses.hint(net(x), y)", "loss.item() * len(x)", ALL, []),
        ("losses.hint(net(x), y)", "loss.item()", "len(loader)", []),
        ("criterion(net(x), y) * len(x)", "loss.item()", ALL, []),
        ("criterion(net(x), y) + penalty(net)", "loss.item()", ALL, []),
        ("losses.hint(net(x), y) + losses.summed(net(x), y)", "loss.item()", ALL, []),
    ],
)
def test_means_of_functions(made: str, added: str, count: str, severities: list[Severity]) -> None:
    text = MEANS.replace("MADE", made).replace("ADDED", added).replace("COUNT", count)
    beside = "def other():\n    total = 0.0\n    for x, y in loader:\n        total += score(x, y)\n    return total\n"
    assert told("EVAL043", {"main.py": text, "losses.py": OTHERS}) == severities
    assert told("EVAL043", {"main.py": text + beside, "losses.py": OTHERS}) == severities
    text = text.replace("batch_size=8, shuffle=True", "**options")
    assert told("EVAL043", {"main.py": text, "losses.py": OTHERS}) == severities
    assert told("EVAL043", {"main.py": text.replace("**options", ""), "losses.py": OTHERS}) == []
