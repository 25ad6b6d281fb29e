# SPDX-License-Identifier: Apache-2.0
"""What the sixteenth bed's strangers wrote rightly, in several wordings, each beside the fault it was taken for."""

import pytest

from tests.support.told import told
from truestep.doctor.finding import Severity

BUG, RISK, QUESTION, ADVICE = Severity.BUG, Severity.RISK, Severity.QUESTION, Severity.ADVICE


# ── VALUE028: what a cell of a script shows, and numpy's method that is given where it writes ──


@pytest.mark.parametrize(
    ("mark", "lines", "severities"),
    [
        ("# %%", "x == y", []),
        ("#%%", "x + y", []),
        ("# %% [markdown]", "x - y", []),
        ("# In[3]:", "x == y", []),
        ("# In[ ]:", "x.softmax(0)", []),
        ("# <codecell>", "torch.exp(x)", []),
        ("# COMMAND ----------", "x * y", []),
        ("# %% shapes", "z = x + 1\n\nx == y\n", []),
        ("# cells", "x == y", [BUG]),
        ("# 20 %%", "x + y", [BUG]),
        ("# %%", "x == y\nprint(y)", [BUG]),
        ("# %%", "for step in range(3):\n    x + y", [BUG]),
        ("# %%", "def move(x, y):\n    x == y\n    return x", [BUG]),
    ],
)
def test_last_line_of_a_cell_of_a_script(mark: str, lines: str, severities: list[Severity]) -> None:
    text = f"{mark}\nx = torch.ones(3)\ny = torch.zeros(3)\n{mark}\n{lines}\n{mark}\nw = x\n"
    assert told("VALUE028", text) == severities


@pytest.mark.parametrize(
    ("line", "severities"),
    [
        ("image.clip(0, 1, image)", []),
        ("image[..., 0].clip(0, 255, image[..., 0])", []),
        ("self.image.clip(-1000, 1000, self.image)", []),
        ("image.clip(0, 1, out=image)", []),
        ("np.clip(image, 0, 1, image)", []),
        ("low, high = 0, 1\n    image.clip(low, high, image)", []),
        ("image.clip(0, 1)", [BUG]),
        ("image.clip(min=0, max=1)", [BUG]),
        ("image.clamp(0, 1)", [BUG]),
        ("np.clip(image, 0, 1)", [BUG]),
    ],
)
def test_clip_into_an_array(line: str, severities: list[Severity]) -> None:
    text = f"import numpy as np\ndef whitened(self, image):\n    {line}\n    return torch.from_numpy(image)\n"
    assert told("VALUE028", text) == severities


# ── EVAL001: a rate that the caller gives among its words ──

ATTENTION = """
def attend(query, key, value, **kwargs):
    SET
    return F.scaled_dot_product_attention(query, key, value, dropout_p=RATE)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
    def forward(self, x):
        return attend(self.fc(x), x, xGIVEN)
"""


@pytest.mark.parametrize(
    ("line", "rate", "given", "severities"),
    [
        ('p = kwargs.get("dropout_p", 0.0)', "p", "", []),
        ('p = kwargs.pop("dropout_p", 0.0)', "p", "", []),
        ('p = kwargs["dropout_p"]', "p", ", dropout_p=0.0", []),
        ("pass", 'kwargs.get("dropout_p", 0.0)', "", []),
        ('mask, p = None, kwargs.get("dropout_p", 0.0)', "p", "", []),
        ('p = kwargs.get("dropout_p") or 0.0', "p", "", []),
        ("p = 0.1", "p", "", [BUG]),
        ("pass", "0.1", "", [BUG]),
        ('p = options.get("dropout_p", 0.1)', "p", "", [BUG]),
        ('p = RATES["dropout_p"]', "p", "", [BUG]),
    ],
)
def test_rate_among_the_words_of_a_call(line: str, rate: str, given: str, severities: list[Severity]) -> None:
    text = ATTENTION.replace("SET", line).replace("RATE)", rate + ")").replace("GIVEN", given)
    assert told("EVAL001", text) == severities


# ── PARAM020: data need no freezing ──

FREEZING = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
    def forward(self, x, day):
        INSIDE
        return self.fc(x)
def freeze(weight):
    FROZEN
loader = DataLoader(train_set)
net = Net()
for images, labels in loader:
    LOOP
    net(images, labels).sum().backward()
"""


@pytest.mark.parametrize(
    ("inside", "frozen", "loop", "severities"),
    [
        ("x.require_grad = False", "pass", "pass", [ADVICE]),
        ("day.requires_grads = False", "pass", "pass", [ADVICE]),
        ("pass", "pass", "images.require_grad = False", [ADVICE]),
        ("x.require_grad = True", "pass", "pass", [BUG]),
        ("self.fc.weight.require_grad = False", "pass", "pass", [BUG]),
        ("x = self.fc.weight; x.require_grad = False", "pass", "pass", [BUG]),
        ("pass", "weight.require_grad = False", "pass", [BUG]),
        ("pass", "for p in weight.parameters(): p.require_grad = False", "pass", [BUG]),
        ("pass", "pass", "net.fc.bias.require_grad = False", [BUG]),
    ],
)
def test_data_need_no_freezing(inside: str, frozen: str, loop: str, severities: list[Severity]) -> None:
    text = FREEZING.replace("INSIDE", inside).replace("FROZEN", frozen).replace("LOOP", loop)
    assert told("PARAM020", text) == severities


# ── GRAD001: a model of a library's that clears itself ──

OF_A_LIBRARY = """
from transformers import AutoModel, BertModel, AutoModelForSequenceClassification as Classifier
model = MADE
other = nn.Linear(2, 2)
HELD
for step, batch in enumerate(train_loader, 1):
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    CLEAR
"""
PRETRAINED = "AutoModel.from_pretrained('a')"
ALL = "optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)"


@pytest.mark.parametrize(
    ("made", "held", "clear", "severities"),
    [
        (PRETRAINED, ALL, "model.zero_grad()", []),
        ("Classifier.from_pretrained('a', num_labels=2)", ALL, "model.zero_grad()", []),
        ("BertModel.from_pretrained('a').cuda()", ALL, "model.zero_grad(set_to_none=True)", []),
        (
            PRETRAINED,
            "ps = filter(lambda p: p.requires_grad, model.parameters())\noptimizer = torch.optim.AdamW(params=ps)",
            "model.zero_grad()",
            [],
        ),
        (
            PRETRAINED,
            "optimizer = torch.optim.AdamW([p for n, p in model.named_parameters() if 'bias' in n])",
            "model.zero_grad()",
            [],
        ),
        (PRETRAINED, ALL, "optimizer.zero_grad()", []),
        (PRETRAINED, ALL, "pass", [BUG]),
        (PRETRAINED, ALL, "other.zero_grad()", [BUG]),
        ("nn.Linear(2, 2)", ALL, "other.zero_grad()", [BUG]),
        ("nn.Linear(2, 2)", ALL, "model.zero_grad()", []),
    ],
)
def test_model_of_a_library_clears_itself(
    made: str, held: str, clear: str, severities: list[Severity]
) -> None:
    text = OF_A_LIBRARY.replace("MADE", made).replace("HELD", held).replace("CLEAR", clear)
    assert told("GRAD001", text) == severities


# ── EVAL002: dropout that spoils the input of an autoencoder ──

SPOILING = """
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
fc1, fc2 = nn.Linear(4, 8), nn.Linear(8, 4)
drop = nn.Dropout(0.5)
opt = torch.optim.SGD([*net.parameters(), *fc1.parameters(), *fc2.parameters()], 0.1)
for epoch in range(3):
    for x, y in train_loader:
        noisy = drop(x)
        loss = F.mse_loss(net(noisy), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        for x, y in test_loader:
            LINES
"""


@pytest.mark.parametrize(
    ("lines", "severities"),
    [
        ("total += F.mse_loss(net(drop(x)), x)", []),
        ("noisy = drop(torch.ones(x.shape)) * x; total += F.mse_loss(net(noisy), x)", []),
        ("noisy = drop(torch.ones_like(x)) * x; total += F.mse_loss(net(noisy), x)", []),
        ("noisy = drop(x.view(-1, 4)); total += F.mse_loss(net(noisy), x)", []),
        ("x = x.flatten(1); total += F.mse_loss(net(drop(x)), x)", []),
        ("x_test = drop(x.to(device)); total += F.mse_loss(net(x_test), x)", []),
        ("total += F.mse_loss(fc2(drop(fc1(x))), x)", [BUG]),
        ("total += F.mse_loss(fc2(drop(F.relu(fc1(x)))), x)", [BUG]),
        ("h = fc1(x); test_h = drop(h); total += F.mse_loss(fc2(test_h), x)", [BUG]),
    ],
)
def test_dropout_that_spoils_the_input(lines: str, severities: list[Severity]) -> None:
    text = SPOILING.replace("LINES", lines)
    if severities:
        text = text.replace("net(noisy), x", "fc2(drop(fc1(x))), x")
    assert told("EVAL002", text) == severities


# ── DIST001: one epoch ──

ONE_EPOCH = """
import torch.multiprocessing as mp
from torch.utils.data import DistributedSampler
def train(rank, model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    for epoch in ROUNDS:
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
def main():
    for rank in range(6):
        loader = DataLoader(data, sampler=DistributedSampler(data, num_replicas=6, rank=rank))
        START
"""
SPAWNED = "mp.Process(target=train, args=(rank, model, loader)).start()"


@pytest.mark.parametrize(
    ("rounds", "start", "severities"),
    [
        ("range(0, 1)", SPAWNED, []),
        ("range(1)", SPAWNED, []),
        ("range(1, 2)", SPAWNED, []),
        ("range(EPOCHS)", SPAWNED.replace("mp", "mp") + "\nEPOCHS = 1", []),
        ("range(0, 2)", SPAWNED, [BUG]),
        ("range(epochs)", SPAWNED, [BUG]),
        ("range(10)", SPAWNED, [BUG]),
        ("range(1)", "for turn in range(9):\n            train(rank, model, loader)", [BUG]),
        ("itertools.count()", SPAWNED, [BUG]),
    ],
)
def test_one_epoch_has_one_order(rounds: str, start: str, severities: list[Severity]) -> None:
    text = ONE_EPOCH.replace("ROUNDS", rounds).replace("START", start)
    assert told("DIST001", text) == severities
    other = "def fit(model):\n    for epoch in range(9):\n        for x in data: model(x).backward()\n"
    assert told("DIST001", text + other) == severities


# ── GRAD007: another optimizer holds the same weights ──

SHARED = """
encoder, decoder, critic = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)
HELD
for x, y in train_loader:
    part.zero_grad()
    whole.zero_grad()
    F.mse_loss(decoder(encoder(x)), y).backward()
    whole.step()
"""
MINE = "part = torch.optim.Adam(encoder.parameters())\n"


@pytest.mark.parametrize(
    ("held", "severities"),
    [
        ("whole = torch.optim.Adam(list(encoder.parameters()) + list(decoder.parameters()))", []),
        ("both = [*encoder.parameters(), *decoder.parameters()]\nwhole = torch.optim.Adam(both)", []),
        (
            "both = list(encoder.parameters())\nboth += list(decoder.parameters())\nwhole = torch.optim.Adam(both)",
            [],
        ),
        (
            "whole = torch.optim.Adam([{'params': encoder.parameters()}, {'params': decoder.parameters()}])",
            [],
        ),
        ("whole = torch.optim.Adam([p for m in (decoder,) for p in encoder.parameters()])", []),
        ("whole = torch.optim.Adam(decoder.parameters())", [BUG]),
        ("whole = torch.optim.Adam(list(critic.parameters()) + list(decoder.parameters()))", [BUG]),
    ],
)
def test_another_optimizer_holds_the_same_weights(held: str, severities: list[Severity]) -> None:
    assert told("GRAD007", SHARED.replace("HELD", MINE + held)) == severities


# ── VALUE030: a program's name, and the one file that a function keeps ──

SAVING = """
import os, subprocess
from subprocess import PIPE, Popen, run
def NAME(model, name, step):
    '''SAID'''
    LINE
    torch.save(model.state_dict(), 'kept.pt')
"""
BY_STEP = "path = os.path.join('out', '{}.pt'.format(name, step)); torch.save(model, path)"


@pytest.mark.parametrize(
    ("name", "said", "line", "severities"),
    [
        ("score", "", "p = run(['pesqmain'.format(name), 'a.wav'], stdout=PIPE)", [ADVICE]),
        ("score", "", "p = subprocess.check_output(['pesq'.format(step), name])", [ADVICE]),
        ("score", "", "p = Popen(('pesq'.format(step), name))", [ADVICE]),
        ("score", "", "p = run(['cp', name, 'model.pt'.format(step)])", [BUG]),
        ("save_model", "保存验证集上最好的那个模型", BY_STEP, [ADVICE]),
        ("save_model", "Keeps the best model.", BY_STEP, [ADVICE]),
        ("save_best", "", BY_STEP, [ADVICE]),
        ("save_model", "", BY_STEP, [BUG]),
        ("save_model", "Writes a checkpoint.", BY_STEP, [BUG]),
    ],
)
def test_program_or_one_file(name: str, said: str, line: str, severities: list[Severity]) -> None:
    assert (
        told("VALUE030", SAVING.replace("NAME", name).replace("SAID", said).replace("LINE", line))
        == severities
    )


# ── EVAL009: who calls eval() ──

OWN_TRAIN = """
class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.G = nn.Linear(4, 4)
        self.D = nn.Linear(4, 1)
    def train(self, opts, loader):
        self.G.train()
        for x in loader:
            self.D(self.G(x)).mean().backward()
    def sample(self, z):
        INSIDE
        return self.G(z)
class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.gan = GAN()
gan, holder = GAN(), Holder()
gan.train(opts, loader)
LINES
"""


@pytest.mark.parametrize(
    ("inside", "lines", "severities"),
    [
        ("self.G.eval()", "", [ADVICE]),
        ("pass", "gan.G.eval()", [ADVICE]),
        ("self.G.eval(); self.D.eval()", "gan.G.eval()", [ADVICE]),
        ("pass", "judge = nn.Linear(4, 1)\njudge.eval()", [ADVICE]),
        ("pass", "", [ADVICE]),
        ("pass", "net = load()\nnet.eval()", [ADVICE]),
        ("pass", "gan.eval()", [BUG]),
        ("self.eval()", "", [BUG]),
        ("pass", "holder.eval()", [BUG]),
    ],
)
def test_eval_of_a_part(inside: str, lines: str, severities: list[Severity]) -> None:
    assert told("EVAL009", OWN_TRAIN.replace("INSIDE", inside).replace("LINES", lines)) == severities


# ── PARAM001: a class that is not written yet; DATA020: training data under a wrong name ──

UNFINISHED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = {"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)}
    FORWARD
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
"""


@pytest.mark.parametrize(
    ("forward", "severities"),
    [
        ("def forward(self):\n        pass", [QUESTION]),
        ("def forward(self, x):\n        ...", [QUESTION]),
        ("def forward(self, x):\n        '''To do.'''\n        raise NotImplementedError", [QUESTION]),
        ("def forward(self, x):\n        return self.parts['a'](x)", [BUG]),
        (
            "def forward(self, x):\n        for each in self.parts.values():\n            x = each(x)\n        return x",
            [BUG],
        ),
        ("def run(self, x):\n        return self.parts['a'](x)", [BUG]),
    ],
)
def test_forward_that_is_not_written(forward: str, severities: list[Severity]) -> None:
    assert told("PARAM001", UNFINISHED.replace("FORWARD", forward)) == severities


MISNAMED = """
from torchvision import datasets
net = nn.Linear(784, 10)
opt = torch.optim.SGD(net.parameters(), 0.1)
test_dataset = datasets.MNIST("data", train=True)
test_loader = DataLoader(test_dataset, batch_size=32)
TRAINED
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
LINES
"""


@pytest.mark.parametrize(
    ("trained", "lines", "severities"),
    [
        ("for x, y in test_loader:", "", [ADVICE]),
        ("for i, (x, y) in enumerate(test_loader):", "", [ADVICE]),
        ("for x, y in test_loader:", "images, _ = next(iter(test_loader))", [ADVICE]),
        (
            "for x, y in train_loader:",
            "for x, y in test_loader:\n    right += (net(x).argmax(1) == y).sum()",
            [BUG],
        ),
        (
            "for x, y in test_loader:",
            "for x, y in test_loader:\n    right += (net(x).argmax(1) == y).sum()",
            [BUG],
        ),
        ("for x, y in train_loader:", "", [BUG]),
    ],
)
def test_training_data_under_a_wrong_name(trained: str, lines: str, severities: list[Severity]) -> None:
    assert told("DATA020", MISNAMED.replace("TRAINED", trained).replace("LINES", lines)) == severities


# ── GRAD013: back to where it came from ──

MOVED = """
class Part(nn.Module):
    def __init__(self, conv, ignore):
        super().__init__()
        self.conv = copy.deepcopy(conv).requires_grad_(True)
        LINE
    def forward(self, x):
        return self.conv(x)
"""


@pytest.mark.parametrize(
    ("value", "severities"),
    [
        ("nn.Parameter(conv.weight.data.clone().clamp(min=0)).to(conv.weight.device)", []),
        ("nn.Parameter(conv.weight.clone()).to(conv.weight.device)", []),
        ("nn.Parameter(torch.zeros_like(conv.weight)).to(conv.weight.device)", []),
        ("nn.Parameter(torch.clamp(conv.weight.data, max=0)).to(conv.weight.device)", []),
        ("nn.Parameter(conv.weight.data).to(conv.weight.device)", []),
        ("nn.Parameter(torch.zeros(conv.weight.shape)).to(conv.weight.device)", [BUG]),
        ("nn.Parameter(conv.weight.data.cpu().clone()).to(conv.weight.device)", [RISK]),
        ("nn.Parameter(conv.weight.data.clone()).to(conv.bias.device)", [RISK]),
        ("nn.Parameter(conv.weight.data.clone()).to(device)", [RISK]),
        ("nn.Parameter(torch.randn(3)).to(conv.weight.device)", [BUG]),
    ],
)
def test_back_to_where_it_came_from(value: str, severities: list[Severity]) -> None:
    assert told("GRAD013", MOVED.replace("LINE", f"self.conv.weight = {value}")) == severities
    assert told("GRAD013", MOVED.replace("LINE", f"self.weight = {value}")) == severities


# ── PARAM021: a list that registers what plain lists hold ──

LISTS = """
class Net(nn.Module):
    def __init__(self, dims):
        super().__init__()
        first, second = [], []
        for dim in dims:
            first.append(nn.Linear(dim, dim))
            second.append(nn.BatchNorm1d(dim))
        HELD
        self.first = first
        KEPT
    def forward(self, x):
        for one in self.first:
            x = one(x)
        REST
        return x
net = Net([2, 2])
"""
GONE_THROUGH = "for one in self.second: x = one(x)"


@pytest.mark.parametrize(
    ("held", "kept", "rest", "severities"),
    [
        ("self.layers = nn.ModuleList(first + second)", "self.second = second", GONE_THROUGH, []),
        ("self.layers = nn.ModuleList([*first, *second])", "self.second = second", GONE_THROUGH, []),
        ("self.layers = nn.ModuleList(first)", "self.second = nn.ModuleList(second)", GONE_THROUGH, []),
        ("self.layers = nn.Sequential(*first, *second)", "self.second = second", GONE_THROUGH, []),
        ("self.layers = nn.ModuleList(first + second)", "pass", "", [RISK]),
        ("self.layers = nn.ModuleList(second)", "pass", "", [RISK]),
        ("self.layers = nn.ModuleList(first + second)", "self.second = second", "", [RISK]),
        ("self.layers = nn.ModuleList([nn.Linear(2, 2)])", "self.second = second", GONE_THROUGH, [RISK]),
    ],
)
def test_list_that_registers(held: str, kept: str, rest: str, severities: list[Severity]) -> None:
    text = LISTS.replace("HELD", held).replace("KEPT", kept).replace("REST", rest)
    assert told("PARAM021", text) == severities


# ── DATA002: a loader whose batches are looked at ──

LOOKED_AT = """
import torchvision
from torch.utils.tensorboard import SummaryWriter
test_data = torchvision.datasets.CIFAR10("data", train=False)
test_loader = DataLoader(test_data, batch_size=64, drop_last=True)
writer = SummaryWriter("logs")
net = nn.Linear(3, 3)
SET
for i, data in enumerate(test_loader):
    images, targets = data
    LINE
"""


@pytest.mark.parametrize(
    ("line", "before", "severities"),
    [
        ("writer.add_images('test', images, i)", "", []),
        ("print(images.shape, targets)", "", []),
        ("grid = torchvision.utils.make_grid(images); writer.add_image('grid', grid, i)", "", []),
        ("torchvision.utils.save_image(images, 'a.png')", "", []),
        ("output = net(images); writer.add_images('out', output, i)", "", [RISK]),
        ("writer.add_scalar('loss', F.mse_loss(net(images), images), i)", "", [RISK]),
        ("output = model(images)", "from models import model", [RISK]),
        ("evaluate(images)", "def evaluate(x):\n    return net(x).sum()", [RISK]),
        ("total += score(images, targets)", "", [RISK]),
        (
            "print(images)",
            "def both():\n    test_loader = DataLoader(test_data, 8, drop_last=True)\n    return test_loader",
            [RISK],
        ),
        ("print(images)", "measure(test_loader)", [RISK]),
    ],
)
def test_batches_that_are_looked_at(line: str, before: str, severities: list[Severity]) -> None:
    assert told("DATA002", LOOKED_AT.replace("LINE", line).replace("SET", before)) == severities


# ── LOSS011: a figure; SCHED002: commented out; PARAM038 ──

ENTROPY = """
net = nn.Linear(4, 4)
for x, y in train_loader:
    p = net(x).softmax(-1)
    LINE
"""


@pytest.mark.parametrize(
    ("line", "severities"),
    [
        ("entropy = -(p * p.log()).sum().item()", [ADVICE]),
        ("print((p * p.log()).sum(-1).mean().item())", [ADVICE]),
        ("entropies.append((-p * torch.log(p)).sum(-1).tolist())", [ADVICE]),
        ("seen = (p * p.log()).detach()", [ADVICE]),
        ("loss = -(p * p.log()).sum(); loss.backward()", [RISK]),
        ("loss = -(p * p.log()).sum(); print(loss.item()); loss.backward()", [RISK]),
        ("loss = F.nll_loss(torch.log(p), y); loss.backward()", [RISK]),
    ],
)
def test_logarithm_of_a_figure(line: str, severities: list[Severity]) -> None:
    assert told("LOSS011", ENTROPY.replace("LINE", line)) == severities


SCHEDULED = """
class Trainer:
    def __init__(self):
        self.net = nn.Linear(4, 4)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 3)
    def fit(self):
        for epoch in range(9):
            for x, y in train_loader:
                self.optimizer.zero_grad()
                F.cross_entropy(self.net(x), y).backward()
                self.optimizer.step()
            LINE
            pass
Trainer().fit()
"""


@pytest.mark.parametrize(
    ("line", "severities"),
    [
        ("# self.scheduler.step()", [ADVICE]),
        ("#self.scheduler.step(epoch)", [ADVICE]),
        ("# TODO: step self.scheduler", [RISK]),
        ("# the scheduler", [RISK]),
        ("# self.optimizer.step()", [RISK]),
        ("", [RISK]),
        ("self.scheduler.step()", []),
    ],
)
def test_schedule_that_is_commented_out(line: str, severities: list[Severity]) -> None:
    assert told("SCHED002", SCHEDULED.replace("LINE", line)) == severities


DEAD = """
class Loss(nn.Module):
    def __init__(self, size, OPTION):
        super().__init__()
        self.loss = nn.CrossEntropyLoss()
    def forward(self, x, y):
        return self.loss(x, y)
CALLS
"""
SPARED = "ignore_index=-100"


@pytest.mark.parametrize(
    ("option", "calls", "severities"),
    [
        (SPARED, "loss = Loss(4)", [ADVICE]),
        (SPARED, "loss = Loss(size=4)\nother = Loss(8)", [ADVICE]),
        (SPARED, "losses = [Loss(each) for each in range(3)]", [ADVICE]),
        (SPARED, "loss = Loss(4, 255)", [RISK]),
        (SPARED, "loss = Loss(4, ignore_index=0)\nother = Loss(4)", [RISK]),
        (SPARED, "loss = Loss(4, ignore_index=args.ignore)", [RISK]),
        (SPARED, "loss = Loss(*sizes)", [RISK]),
        (SPARED, "", [ADVICE]),
        ("ignore_index=255", "", [RISK]),
        ("ignore_index=255", "loss = Loss(4)", [ADVICE]),
        ("label_smoothing=0.1", "loss = Loss(4)", [ADVICE]),
    ],
)
def test_target_that_is_left_out_anyway(option: str, calls: str, severities: list[Severity]) -> None:
    assert told("PARAM038", DEAD.replace("OPTION", option).replace("CALLS", calls)) == severities


# ── EVAL003: a model of a library's is put into a mode as any other ──


@pytest.mark.parametrize(
    ("top", "behind", "severities"),
    [
        ("model.train()", "model.eval()", []),
        ("pass", "model.eval(); evaluate(model); model.train()", []),
        ("pass", "pass", []),
        ("pass", "model.eval()", [RISK]),
    ],
)
def test_mode_of_a_model_of_a_library(top: str, behind: str, severities: list[Severity]) -> None:
    text = f"""
from transformers import AutoModel
model = AutoModel.from_pretrained("a")
model.train()
opt = torch.optim.AdamW(model.parameters())
for epoch in range(3):
    {top}
    for batch in train_loader:
        opt.zero_grad()
        model(**batch).loss.backward()
        opt.step()
    {behind}
    with torch.no_grad():
        for batch in test_loader:
            total += model(**batch).loss
"""
    assert told("EVAL003", text) == severities
