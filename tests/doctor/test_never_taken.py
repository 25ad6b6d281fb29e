# SPDX-License-Identifier: Apache-2.0
"""What stands in a branch that no run in sight takes, in wordings of strangers, and beside each a run that takes it."""

import pytest

from tests.support.told import loud, told
from truestep.doctor.finding import Severity

# ── EVAL008: layers that are built where an argument asks for them ─────────────────────────────

PREDICTS = """
class Net(nn.Module):
    def __init__(self, width=8, {parameter}):
        super().__init__()
        layers = [nn.Linear(4, width), nn.ReLU()]
        {built}
        self.body = nn.Sequential(*layers, nn.Linear(width, 3))

    def forward(self, x):
        return self.body(x)


net = {made}
net.load_state_dict(torch.load("net.pt", weights_only=True))
print(net(x).argmax(1))
"""
ADDS = "layers.append(nn.Dropout(p))"
ADD = f"""
    def add(self, layers, p):
        if not p:
            return
        {ADDS}

    def more(self, layers):
        self.body = nn.Sequential(*layers)
"""
BUILT = [
    ("p=0", f"if p:\n            {ADDS}"),
    ("p=0.0", f"if p > 0:\n            {ADDS}"),
    ("p=None", f"if p is not None:\n            {ADDS}"),
    ("p=0.", f"if p and p > 0.0:\n            {ADDS}"),
    ("p=0.", "layers.append(nn.Dropout(p))"),
    ("p=0.", "layers.append(nn.Dropout(p) if p > 0 else nn.Identity())"),
    ("p=0.", "layers += [nn.Dropout(p=p)] if p else []"),
    ("p=None", f"if p is None:\n            pass\n        else:\n            {ADDS}"),
    ("p=0", f"self.p = p\n        if not self.p == 0:\n            {ADDS}"),
    ("p=0", "if p != 0.0 and width > 2:\n            layers += [nn.Dropout(p)]"),
    ("p=0", "use = bool(p)\n        if use:\n            layers += [nn.BatchNorm1d(width)]"),
    ("p=False", "if p:\n            layers.append(nn.BatchNorm1d(width))"),
    ("*, p=0", f"for _ in range(2):\n            if p:\n                {ADDS}"),
    ("p=0.0", f"self.add(layers, p)\n{ADD}"),
]  # fmt: skip


@pytest.mark.parametrize(("parameter", "built"), BUILT)
def test_layers_that_no_caller_asks_for(parameter, built):
    def program(made):
        return PREDICTS.format(parameter=parameter, built=built, made=made)

    assert not loud("EVAL008", program("Net()"))
    assert not loud("EVAL008", program("Net(16)"))
    assert not loud("EVAL008", program("Net(width=16).to('cuda')"))
    assert loud("EVAL008", program("Net(p=0.5)"))
    assert loud("EVAL008", program("Net(**options)"))


@pytest.mark.parametrize(
    "made",
    [
        "RATE = 0.5\nnet = Net(16, RATE)",
        "net = Net(16, ask())",
        "class Wide(Net):\n    def __init__(self):\n        super().__init__(64, p=0.3)\nnet = Wide()",
        "def build(p=0.2):\n    return Net(p=p)\nnet = build()",
    ],
)
def test_layers_that_a_caller_asks_for(made):
    text = PREDICTS.format(parameter="p=0.0", built=f"if p:\n            {ADDS}", made="Net()")
    head, _, tail = text.partition("net = Net()")
    assert loud("EVAL008", f"{head}{made}{tail}")


def test_another_caller_says_nothing_of_this_net():
    text = PREDICTS.format(parameter="p=0.0", built=f"if p:\n            {ADDS}", made="Net()")
    assert not loud("EVAL008", f"{text}\nother = Net(p=0.5)\nother.eval\n")
    assert not loud("EVAL008", text.replace("net = Net()", "P = 0\nnet = Net(8, P)"))
    assert not loud("EVAL008", text.replace("if p:", "if __debug__ and False:"))
    assert not loud("EVAL008", text.replace("if p:", "if sys.version_info[0] < 3:"))


# ── EVAL001: a rate that nobody sets ───────────────────────────────────────────────────────────

ATTENTION = """
class Attention(nn.Module):
    def __init__(self, width, {parameter}):
        super().__init__()
        self.head = nn.Linear(width, width)
        {kept}

    def forward(self, x):
        {dropped}
        return x


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = {made}

    def forward(self, x):
        return self.attention(x)
"""
DROPPED = [
    ("rate=0.0", "self.rate = rate", "x = F.dropout(self.head(x), p=self.rate)"),
    ("rate: float = 0.", "self.dropout = rate", "x = F.dropout(self.head(x), self.dropout)"),
    ("rate=0", "self.p = rate", "if self.p:\n            x = F.dropout(x, self.p)"),
    ("rate=None", "self.p = rate", "if self.p is not None:\n            x = F.dropout(x, self.p)"),
    ("*, rate=0.0", "self.p = rate", "x = F.dropout(x, self.p) if self.p > 0 else x"),
    (
        "rate=0.0",
        "self.p = rate",
        "x = F.scaled_dot_product_attention(x, x, x, dropout_p=self.p)",
    ),
    ("rate=False", "self.drops = rate", "if self.drops:\n            x = F.dropout(x, 0.5)"),
    ("rate=False", "self.drops = rate", "if not self.drops:\n            return x\n        x = F.dropout(x, 0.5)"),
]  # fmt: skip


@pytest.mark.parametrize(("parameter", "kept", "dropped"), DROPPED)
def test_a_rate_that_nobody_sets_drops_nothing(parameter, kept, dropped):
    def program(made):
        return ATTENTION.format(parameter=parameter, kept=kept, dropped=dropped, made=made)

    assert not loud("EVAL001", program("Attention(width)"))
    assert not loud("EVAL001", program("None"))  # for others to use: who sets it is not in sight
    assert loud("EVAL001", program("Attention(width, rate=0.1)"))
    assert loud("EVAL001", program("Attention(width, **options)"))


@pytest.mark.parametrize(
    "more",
    [
        "class Own(Attention):\n    def __init__(self):\n        super().__init__(8, rate=0.1)",
        "class Own(Attention):\n    def __init__(self):\n        Attention.__init__(self, 8, rate=0.1)",
        "import functools\nmake = functools.partial(Attention, rate=0.1)",
        "made = Attention(8)\nmade.rate = 0.1",
        "def build(kind):\n    return {'a': Attention}[kind](8, rate=0.3)",
    ],
)
def test_a_rate_that_somebody_sets(more):
    text = ATTENTION.format(
        parameter="rate=0.0", kept="self.rate = rate", dropped="x = F.dropout(x, self.rate)", made="None"
    )
    assert not loud("EVAL001", text)
    assert loud("EVAL001", f"{text}\n{more}\n")


# ── DIST001: a sampler that is made on a way which no caller takes ─────────────────────────────

SAMPLES = """
from torch.utils.data.distributed import DistributedSampler

{before}
def loader_of(data, {parameter}):
    sampler = None
    {way}
    return DataLoader(data, batch_size=8, shuffle=sampler is None, sampler=sampler)


def train(net, opt, data):
    loader = {called}
    for epoch in range(10):
        for x, y in loader:
            opt.zero_grad()
            F.mse_loss(net(x), y).backward()
            opt.step()
"""
MADE = "sampler = DistributedSampler(data)"
WAYS = [
    ("", "distributed=False", f"if distributed:\n        {MADE}"),
    ("", "world_size=1", f"if world_size > 1:\n        {MADE}"),
    ("", "rank=None", f"if rank is not None:\n        {MADE}"),
    ("", "rank=-1", f"if rank != -1:\n        {MADE}"),
    ("", "distributed: bool = False", "sampler = DistributedSampler(data) if distributed else None"),
    ("", "mode='single'", f"if mode == 'ddp':\n        {MADE}"),
    ("", "mode='single'", f"if mode == 'single':\n        pass\n    else:\n        {MADE}"),
    ("", "distributed=False", f"is_many = distributed\n    if is_many and torch.cuda.is_available():\n        {MADE}"),
    ("", "distributed=False", f"if not distributed:\n        return DataLoader(data, shuffle=True)\n    {MADE}"),
]  # fmt: skip
TAKEN = {
    "rank=None": "rank=3",
    "rank=-1": "rank=3",
    "world_size=1": "world_size=4",
    "mode='single'": "mode='ddp'",
}


@pytest.mark.parametrize(("before", "parameter", "way"), WAYS)
def test_a_sampler_that_no_caller_asks_for(before, parameter, way):
    def program(called):
        return SAMPLES.format(before=before, parameter=parameter, way=way, called=called)

    assert not loud("DIST001", program("loader_of(data)"))
    assert loud("DIST001", program(f"loader_of(data, {TAKEN.get(parameter, 'distributed=True')})"))
    assert loud("DIST001", program("loader_of(data, ask())"))


@pytest.mark.parametrize("test", ["False", "0", "not True", "DISTRIBUTED", "sys.version_info[0] == 2"])
def test_a_sampler_behind_a_test_that_never_holds(test):
    program = SAMPLES.format(
        before="DISTRIBUTED = False\n", parameter="seed=0", way="if TEST:\n        " + MADE, called="loader_of(data)"
    )  # fmt: skip
    assert not loud("DIST001", program.replace("TEST", test))
    assert loud("DIST001", program.replace("TEST", "True"))
    assert loud("DIST001", program.replace("TEST", "torch.distributed.is_initialized()"))


# ── any code: what no run in sight comes by is no bug ──────────────────────────────────────────

TRAINS = """
{before}
class Training:
    {shared} = 0

    def run(self, net, opt, loader, {parameter}):
        for x, y in loader:
            loss = F.cross_entropy(net(x), y)
            if {test}:
                F.cross_entropy(net(x).softmax(1), y).backward()
            loss.backward()
            opt.step()
            opt.zero_grad()


def main(training, net, opt, loader):
    {called}
"""
PLAIN = {
    "before": "",
    "shared": "amp",
    "parameter": "extra=False",
    "called": "Training().run(net, opt, loader)",
}


@pytest.mark.parametrize(
    ("test", "changes"),
    [
        ("extra", {}),
        ("extra is True", {}),
        ("self.amp", {}),
        ("USE", {"before": "USE = False"}),
        ("USE and x.any()", {"before": "USE = 0"}),
        ("self.amp > 3 or extra", {}),
        ("False", {}),
        ("USE.it", {"before": "import argparse\nUSE = argparse.Namespace(it=False)"}),
    ],
)
def test_a_mistake_that_no_run_comes_by_is_a_risk(test, changes):
    assert told("LOSS001", TRAINS.format(**PLAIN | changes | {"test": test})) == [Severity.RISK]


@pytest.mark.parametrize(
    ("test", "changes"),
    [
        ("extra", {"called": "Training().run(net, opt, loader, True)"}),
        ("extra", {"called": "Training().run(net, opt, loader, extra=ask())"}),
        ("extra", {"called": "Training().run(net, opt, loader, **options)"}),
        ("extra", {"called": "training.run(net, opt, loader, True)"}),
        ("extra", {"called": "run = Training().run\n    run(net, opt, loader, True)"}),
        ("extra", {"called": "later(Training().run, extra=True)"}),
        ("self.amp", {"called": "made = Training()\n    made.amp = 1"}),
        ("self.amp", {"called": "Training.amp = 1"}),
        ("self.amp", {"called": "training.amp = ask()"}),
        ("self.amp", {"called": "setattr(training, 'amp', 1)"}),
        (
            "self.amp",
            {"before": "class Base:\n    pass", "called": "class Own(Training):\n        amp = 1\n    Own()"},
        ),
        ("USE", {"before": "USE = False\ndef use():\n    global USE\n    USE = True"}),
        ("USE", {"before": "USE = False\nif ask():\n    USE = True"}),
        ("USE", {"before": "from config import USE"}),
        ("USE", {"before": "USE = 0\nUSE += ask()"}),
        ("USE['it']", {"before": "USE = {'it': False}\nUSE['it'] = ask()"}),
        ("USE['it']", {"before": "USE = {'it': False}\nUSE.update(ask())"}),
        ("USE.it", {"before": "import argparse\nUSE = argparse.Namespace(it=ask())"}),
        ("not extra", {}),
        ("extra or True", {}),
        ("len(x) > 3", {}),
        ("__name__ == '__main__'", {}),
        ("net.training", {}),
    ],
)
def test_a_mistake_that_a_run_may_come_by_is_a_bug(test, changes):
    assert told("LOSS001", TRAINS.format(**PLAIN | changes | {"test": test})) == [Severity.BUG]


CALLED = """
{decorator}
def scaled(net, x, y, extra=None):
    if extra is not None:
        return F.cross_entropy(net(x).softmax(1), y)
    return F.cross_entropy(net(x), y)


class Task({base}):
    def {method}(self, net, x, y, extra=None):
        if extra is not None:
            return F.cross_entropy(net(x).softmax(1), y)
        return F.cross_entropy(net(x), y)


def train(net, opt, loader, task):
    for x, y in loader:
        opt.zero_grad()
        {called}.backward()
        opt.step()
"""
ASIDE = {"decorator": "", "base": "", "method": "other", "called": "scaled(net, x, y)"}


@pytest.mark.parametrize(
    "changes",
    [
        {"decorator": "import click\n@click.command()\n@click.option('--extra')"},
        {"decorator": "import hydra\n@hydra.main()"},
        {"base": "nn.Module", "method": "forward"},
        {"method": "__call__"},
        {"base": "lightning.LightningModule", "decorator": "import lightning", "method": "training_step"},
        {"base": "Engine", "decorator": "from engines import Engine", "method": "on_batch"},
        {"called": "task.other(net, x, y, 1)"},
    ],
)
def test_what_is_called_out_of_sight_may_be_given_anything(changes):
    assert Severity.BUG in told("LOSS001", CALLED.format(**ASIDE | changes))


def test_what_is_called_in_sight_alone():
    assert told("LOSS001", CALLED.format(**ASIDE)) == [Severity.RISK] * 2
    assert told("LOSS001", CALLED.format(**ASIDE | {"base": "nn.Module"})) == [Severity.RISK] * 2


def test_another_file_may_set_a_name():
    files = {
        "config.py": "USE = False\n",
        "main.py": TRAINS.format(**PLAIN | {"before": "import config", "test": "config.USE"}),
    }
    assert told("LOSS001", files) == [Severity.RISK]
    assert told("LOSS001", files | {"go.py": "import config, main\nconfig.USE = True\n"}) == [Severity.BUG]
