# SPDX-License-Identifier: Apache-2.0
"""What the thirteenth bed's strangers wrote rightly, in several wordings, each beside the fault it was taken for."""

import textwrap
from pathlib import Path

import pytest

from tests.support.told import IMPORTS, told
from truestep.doctor.finding import Severity
from truestep.doctor.linting import read_paths

BUG, RISK, QUESTION, ADVICE = Severity.BUG, Severity.RISK, Severity.QUESTION, Severity.ADVICE


# ── DIST001: the sampler of data that are held out, and one that no run makes ─────────────────

LOADERS = """
from torch.utils.data import DistributedSampler, RandomSampler
def loaders(args, train_set, val_set):
    train_sampler = RandomSampler(train_set)
    train_loader = DataLoader(train_set, sampler=train_sampler, batch_size=args.train_batch_size)
    SAMPLER
    LOADER
    return train_loader, other
net = nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), 0.1)
train_loader, other = loaders(args, train_set, val_set)
for epoch in range(3):
    for x, y in train_loader:
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        opt.step()
    for x, y in other:
        net(x)
"""
MADE = "DataLoader({}, sampler={}, batch_size=args.train_batch_size)"


@pytest.mark.parametrize(
    ("sampler", "loader"),
    [
        ("val_sampler = DistributedSampler(val_set)", f"other = {MADE.format('val_set', 'val_sampler')}"),
        ("s = DistributedSampler(val_set)", f"other = {MADE.format('val_set', 's')}"),
        ("s = DistributedSampler(args.sets['val'])", f"other = {MADE.format('args.sets', 's')}"),
        (
            "test_sampler = DistributedSampler(args.data)",
            f"other = {MADE.format('args.data', 'test_sampler')}",
        ),
        ("s = DistributedSampler(args.data)", f"other = val_loader = {MADE.format('args.data', 's')}"),
        (
            "val_sampler = None if args.rank < 0 else DistributedSampler(val_set)",
            "other = DataLoader(val_set, args.train_batch_size, sampler=val_sampler)",
        ),
        (
            "val_sampler = DistributedSampler(val_set, seed=args.train_seed)",
            "other = DataLoader(val_set, args.train_batch_size, False, val_sampler)",
        ),
        ("pass", f"other = {MADE.format('val_set', 'DistributedSampler(val_set)')}"),
        (
            "val_sampler = DistributedSampler(val_set)",
            "other = DataLoader(val_set, num_workers=args.train_workers, sampler=val_sampler)",
        ),
    ],
)
def test_a_sampler_of_held_out_data(sampler: str, loader: str) -> None:
    assert told("DIST001", LOADERS.replace("SAMPLER", sampler).replace("LOADER", loader)) == []


@pytest.mark.parametrize(
    ("sampler", "loader"),
    [
        ("s = DistributedSampler(train_set)", f"other = {MADE.format('train_set', 's')}"),
        ("s = DistributedSampler(args.data)", f"other = {MADE.format('args.data', 's')}"),
        (
            "s = DistributedSampler(args.data)",
            "other = DataLoader(args.data, batch_size=args.val_batch_size, sampler=s)",
        ),
        (
            "train_sampler = DistributedSampler(args.data)",
            f"other = {MADE.format('args.data', 'train_sampler')}",
        ),
        (
            "train_sampler = DistributedSampler(args.data, seed=args.test_seed)",
            f"other = {MADE.format('args.data', 'train_sampler')}",
        ),
    ],
)
def test_a_sampler_of_training_data(sampler: str, loader: str) -> None:
    assert told("DIST001", LOADERS.replace("SAMPLER", sampler).replace("LOADER", loader)) == [BUG]


SWITCHED = """
import argparse
from torch.utils.data import DistributedSampler, RandomSampler
def sampler_of(data, distributed):
    if distributed:
        return DistributedSampler(data)
    return RandomSampler(data)
parser = argparse.ArgumentParser()
args = parser.parse_args()
SET
loader = DataLoader(data, sampler=sampler_of(data, distributed=args.distributed))
net = nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), 0.1)
for epoch in range(3):
    for x, y in loader:
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        opt.step()
"""


@pytest.mark.parametrize(
    ("lines", "severities"),
    [
        ("args.distributed = False", []),
        ("args.distributed = 0", []),
        ("args.distributed = None", []),
        ("args.distributed = False\nprint(args)", []),
        ("args.distributed = False\nif args.distributed:\n    torch.distributed.init_process_group()", []),
        ("args.seed = 1\nargs.distributed = not True", []),
        ("args.distributed = True", [BUG]),
        ("args.distributed = torch.cuda.device_count() > 1", [BUG]),
        ("if 'RANK' not in os.environ:\n    args.distributed = False", [BUG]),
        ("args.distributed = False\nargs.distributed = args.world_size > 1", [BUG]),
        ("args.distributed = False\nset_up(args)", [BUG]),
        ("other.distributed = False", [BUG]),
    ],
)
def test_an_option_that_is_set_before_it_is_read(lines: str, severities: list[Severity]) -> None:
    assert told("DIST001", SWITCHED.replace("SET", lines)) == severities


# ── GRAD024: what is out of sight may go backward ─────────────────────────────────────────────

STEPS = """
from helpers import accumulate
import helpers
net = nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), 0.1)
for x, y in [(torch.ones(2, 3), torch.ones(2, 3))]:
    opt.zero_grad()
    CALL
    opt.step()
"""
LOSS = "loss = F.mse_loss(net(x), y)\n    "


@pytest.mark.parametrize(
    "call",
    [
        "loss = accumulate(net, x, y)",
        "loss = accumulate({}, inputs=x, model=net)",
        "loss = helpers.accumulate(x, y, net)",
        LOSS + "accumulate(loss)",
        LOSS + "accumulate(loss / 4)",
        LOSS + "total = loss + 0.1\n    accumulate(total)",
        LOSS + "helpers.run(loss=loss)",
        LOSS + "helpers.Engine().run(loss)",
        LOSS + "accumulate([loss])",
        LOSS + "accumulate(dict(loss=loss))",
    ],
)
def test_a_loss_that_is_handed_out_of_sight(call: str) -> None:
    assert told("GRAD024", STEPS.replace("CALL", call)) == []


@pytest.mark.parametrize(
    "call",
    [
        LOSS.rstrip(),
        LOSS + "print(loss)",
        LOSS + "accumulate(x)",
        LOSS + "accumulate(loss.item())",
        LOSS + "accumulate(loss.detach())",
        LOSS + "losses = []\n    losses.append(loss)",
        LOSS + "torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)",
    ],
)
def test_a_loss_that_goes_nowhere(call: str) -> None:
    assert told("GRAD024", STEPS.replace("CALL", call)) == [BUG]


@pytest.mark.parametrize("top", ["src", ".", "code/src"])
def test_a_package_beneath_a_folder_that_is_read_without_a_mark_of_a_project(
    tmp_path: Path, top: str
) -> None:
    root = tmp_path / top
    (root / "training").mkdir(parents=True)
    loop = STEPS.replace("helpers", "training.parts").replace("CALL", "loss = accumulate(net, x, y)")
    (root / "main.py").write_text("from training.loop import net\n")
    (root / "training/loop.py").write_text(IMPORTS + loop)
    body = "def accumulate(net, x, y):\n    loss = F.mse_loss(net(x), y)\n    BACKWARD\n    return loss\n"
    for line, severities in (("loss.backward()", []), ("print(loss)", [BUG])):
        (root / "training/parts.py").write_text(IMPORTS + body.replace("BACKWARD", line))
        reading = read_paths([tmp_path])
        assert [each.severity for each in reading.findings if each.code == "GRAD024"] == severities


# ── DATA020: a name says training, and what it holds is held out ──────────────────────────────

HELD = """
from torch.utils.data import TensorDataset
from torchvision import datasets
MADE
test_loader = DataLoader(spectra_train_dataset, batch_size=8)
"""


@pytest.mark.parametrize(
    ("made", "severities"),
    [
        ("spectra_train_dataset = TensorDataset(flux_test, phase_test)", []),
        ("spectra_train_dataset = TensorDataset(test_data['flux'])", []),
        ("spectra_train_dataset = datasets.MNIST('data', train=False)", []),
        ("spectra_train_dataset = Spectra(split='test')", []),
        ("spectra_train_dataset = Spectra('data/val.csv', which='val')", []),
        ("spectra_train_dataset = Spectra(test_set)", []),
        ("spectra_train_dataset = Spectra(valid_files, transform)", []),
        ("spectra_train_dataset = test_dataset", []),
        ("spectra_train_dataset = datasets.MNIST('data', train=True)", [RISK]),
        ("spectra_train_dataset = TensorDataset(flux, phase)", [RISK]),
        ("spectra_train_dataset = TensorDataset(train_x, test_y)", [RISK]),
        ("spectra_train_dataset = Spectra(split='train')", [RISK]),
        ("spectra_train_dataset = Spectra(split='test') if c else Spectra(split='train')", [RISK]),
        ("pass", [RISK]),
    ],
)
def test_a_name_that_alone_says_training(made: str, severities: list[Severity]) -> None:
    assert told("DATA020", HELD.replace("MADE", made)) == severities


# ── GRAD013: a move to where it is ────────────────────────────────────────────────────────────

LEAF = """
def attack(model, x, device):
    BEFORE
    w = MADE
    opt = torch.optim.Adam([w], lr=0.1)
    return opt
"""


@pytest.mark.parametrize(
    ("before", "made", "severities"),
    [
        ("x = x.to(device)", "torch.zeros_like(x, requires_grad=True).to(device)", []),
        ("x = x.cuda()", "torch.randn_like(x, requires_grad=True).cuda()", []),
        ("x = x.to('cuda')", "torch.ones_like(x, requires_grad=True).to('cuda')", []),
        ("pass", "torch.zeros(3, device=device, requires_grad=True).to(device)", []),
        ("pass", "torch.randn(3, device='cuda', requires_grad=True).to('cuda')", []),
        ("x = x.to(device)", "nn.Parameter(x).to(device)", []),
        ("pass", "nn.Parameter(x.to(device)).to(device)", []),
        ("pass", "torch.zeros_like(x.to(device), requires_grad=True).to(device)", []),
        ("pass", "torch.zeros_like(x, requires_grad=True).to(device)", [RISK]),
        ("x = x.to('cpu')", "torch.zeros_like(x, requires_grad=True).to(device)", [RISK]),
        ("x = torch.ones(3)", "torch.zeros(3, requires_grad=True).to(device)", [BUG]),
        ("x = x.to(device)", "torch.zeros(3, requires_grad=True).to(device)", [BUG]),
        ("x = x.to(device)", "torch.zeros_like(x, requires_grad=True).double()", [BUG]),
        ("pass", "torch.zeros(3, device='cpu', requires_grad=True).to(device)", [BUG]),
    ],
)
def test_a_move_to_where_a_leaf_is(before: str, made: str, severities: list[Severity]) -> None:
    assert told("GRAD013", LEAF.replace("BEFORE", before).replace("MADE", made)) == severities


# ── VALUE030: what is dropped is the same at each call ────────────────────────────────────────

NAMED = """
def train(net, fold):
    for epoch in range(3):
        LINE
"""


@pytest.mark.parametrize(
    ("line", "severities"),
    [
        ("log = open('loss.log'.format(fold=1), 'at')", [ADVICE]),
        ("log = open('loss.log'.format(1), 'a')", [ADVICE]),
        ("torch.save(net, 'net.pt'.format('net50'))", [ADVICE]),
        ("log = open('loss.log'.format(fold=fold), 'at')", [BUG]),
        ("torch.save(net, 'net.pt'.format(epoch))", [BUG]),
        ("torch.save(net, 'net.pt'.format(epoch + 1))", [BUG]),
    ],
)
def test_a_dropped_value_that_is_the_same_each_time(line: str, severities: list[Severity]) -> None:
    assert told("VALUE030", NAMED.replace("LINE", line)) == severities


# ── VALUE041: what a condition leaves out at first, and what stands behind branches that leave ─

ROUND = """
def forward(blocks, x):
    for i, block in enumerate(blocks):
        out = block(x)
        LINE
    return x
net = nn.Sequential(nn.Linear(3, 3))
opt = torch.optim.SGD(net.parameters(), 0.1)
for x in [torch.ones(3)]:
    opt.zero_grad()
    loss = forward(net, x).sum()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("line", "severities"),
    [
        ("seen = out if i == 0 else torch.cat((seen, out))", []),
        ("seen = torch.cat((seen, out)) if i > 0 else out", []),
        ("seen = out if not i else seen + out", []),
        ("seen = i > 0 and seen + 1", []),
        ("seen = i == 0 or (seen, out)", []),
        ("if i == 0:\n            seen = out\n        else:\n            seen = seen + out", []),
        ("seen = (out if i == 0 else torch.cat((seen, out))).relu()", []),
        ("seen = torch.cat((seen, out))", [BUG]),
        ("seen = seen + out if seen is not None else out", [BUG]),
        ("seen = seen or out", [BUG]),
    ],
)
def test_a_name_that_a_condition_leaves_out_at_first(
    line: str, severities: list[Severity], tmp_path: Path
) -> None:
    path = tmp_path / "main.py"
    path.write_text(IMPORTS + ROUND.replace("LINE", line))
    found = [each.severity for each in read_paths([path]).findings if each.code == "VALUE041"]
    assert found[:1] == severities


LEAVES = """
def rate(i):
    BRANCHES
    return i * factor
net = nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), rate(3))
for x in [torch.ones(3)]:
    opt.zero_grad()
    net(x).sum().backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("branches", "is_told"),
    [
        ("if i < 3:\n    return 1\nelse:\n    return 2", False),
        ("if i < 3:\n    return 1\nelif i < 5:\n    return 2\nelse:\n    raise ValueError", False),
        (
            "if i < 3:\n    if i > 1:\n        return 1\n    else:\n        return 3\nelse:\n    return 2",
            False,
        ),
        ("try:\n    return 1\nexcept ValueError:\n    return 2", False),
        ("if i < 3:\n    sys.exit(1)\nelse:\n    return 2", False),
        ("return 1", False),
        ("if i < 3:\n    return 1", True),
        ("if i < 3:\n    return 1\nelif i < 5:\n    return 2", True),
        ("if i < 3:\n    return 1\nelse:\n    print(i)", True),
        ("try:\n    return 1\nexcept ValueError:\n    pass", True),
    ],
)
def test_a_line_behind_branches_that_all_leave(branches: str, is_told: bool, tmp_path: Path) -> None:
    path = tmp_path / "main.py"
    path.write_text(IMPORTS + LEAVES.replace("BRANCHES", textwrap.indent(branches, "    ").lstrip()))
    assert is_told == any(each.code == "VALUE041" for each in read_paths([path]).findings)


# ── LOSS007 and LOSS023: a class chosen in another axis, weights of tokens ──────────────────────────────

CHOSEN = """
def measure(net, loader):
    net.eval()
    with torch.no_grad():
        for x, y in loader:
            logits = net(x)
            LINES
            print((chosen == y).sum())
"""


@pytest.mark.parametrize(
    ("lines", "severities"),
    [
        ("preds = torch.softmax(logits, dim=0)\nchosen = preds.argmax(dim=1)", [RISK]),
        ("preds = F.softmax(logits, 0)\nchosen = preds.argmax(1)", [RISK]),
        ("chosen = logits.softmax(0).argmax(1)", [RISK]),
        ("preds = nn.Softmax(dim=0)(logits)\n_, chosen = torch.max(preds, 1)", [RISK]),
        ("chosen = torch.argmax(torch.softmax(logits, 0), dim=1)", [RISK]),
        ("soft = nn.Softmax(0)\nchosen = soft(logits).max(1)[1]", [RISK]),
        ("preds = logits.softmax(dim=0)\nchosen = preds.topk(1, 1)[1]", [RISK]),
        ("axis = 0\npreds = torch.softmax(logits, dim=axis)\nchosen = preds.max(dim=1).indices", [RISK]),
        ("preds = torch.softmax(logits, dim=0)\nvalue, chosen = preds.max(1)", [RISK]),
        ("preds = F.softmax(logits, dim=0)\nprint(preds)\nchosen = torch.topk(preds, 1, dim=1)[1]", [RISK]),
        ("preds = torch.softmax(logits, dim=1)\nchosen = preds.argmax(dim=1)", []),
        ("preds = torch.softmax(logits, dim=-1)\nchosen = preds.argmax(1)", []),
        ("preds = torch.softmax(logits[0], dim=0)\nchosen = preds.argmax(0)", []),
        ("preds = torch.softmax(logits[0], dim=0)\nchosen = preds.argmax(-1)", []),
        ("preds = torch.softmax(logits[0], 0)\nchosen = torch.topk(preds, 1)[1]", []),
        ("preds = torch.softmax(logits, 0)\nprint(preds)\nchosen = logits.argmax(1)", []),
        ("preds = [F.softmax(each, dim=0) for each in logits]\n_, chosen = torch.max(logits, 1)", []),
        ("preds = torch.softmax(logits, 0)\npreds = logits.softmax(1)\nchosen = preds.argmax(1)", []),
    ],
)
def test_a_class_that_is_chosen_in_another_axis(lines: str, severities: list[Severity]) -> None:
    code = CHOSEN.replace("LINES", textwrap.indent(lines, " " * 12).lstrip())
    assert told("LOSS007", code) == severities


POOL = """
class Net(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.score = nn.Linear(dim, 1)
        self.head = nn.Linear(dim, 3)
    def forward(self, x):
        g = self.score(x)
        xl = F.softmax(g, dim=1)
        POOLED
"""


@pytest.mark.parametrize(
    ("pooled", "is_told"),
    [
        ("return self.head(torch.matmul(xl.transpose(-1, -2), x).squeeze(-2))", False),
        ("return self.head((xl.transpose(1, 2) @ x).squeeze(1))", False),
        ("return self.head(torch.bmm(xl.permute(0, 2, 1), x).squeeze(1))", False),
        ("return self.head((xl.expand_as(x) * x).sum(1))", False),
        ("return self.head((xl.mT @ x)[:, 0])", False),
        ("return self.head(xl.mT.matmul(x)[:, 0])", False),
        ("return self.head((xl * x).sum(1))", False),
        ("return xl", True),
        ("return xl.squeeze(1)", True),
        ("return xl.transpose(0, 1)", True),
        ("return xl.view(-1)", True),
    ],
)
def test_weights_of_tokens(pooled: str, is_told: bool) -> None:
    found = told("LOSS023", POOL.replace("POOLED", pooled))
    assert bool([each for each in found if each in (BUG, RISK)]) == is_told


# ── AMP007: an autocast around a validation ───────────────────────────────────────────────────

HALF = """
def validate(pipe, net, images):
    for image in images:
        with torch.autocast("cuda"):
            shown = VALIDATES
    return shown
def run(net, pipe, loader, opt):
    for x, y in loader:
        opt.zero_grad()
        TRAINS
        loss.backward()
        opt.step()
        validate(pipe, net, x)
run(nn.Linear(3, 3), load_pipeline(), DataLoader(data), torch.optim.SGD(net.parameters(), 0.1))
"""
PLAINLY = "loss = F.mse_loss(net(x), y)"


@pytest.mark.parametrize(
    ("validates", "trains", "num_told"),
    [
        ("pipe(image)", PLAINLY, 0),
        ("pipe(image, steps=20).images[0]", PLAINLY, 0),
        ("image.mean()", PLAINLY, 0),
        ("image @ image.T", PLAINLY, 0),
        ("pipe(image)", f"with torch.autocast('cuda'):\n            {PLAINLY}", 1),
        (
            "pipe(image)",
            "with torch.autocast('cuda', dtype=torch.float16):\n            out = net(x)\n        loss = F.mse_loss(out, y)",
            1,
        ),
        (
            "pipe(image)",
            "out = net(x)\n        with torch.autocast('cuda', torch.float16):\n            loss = F.mse_loss(out, y)",
            1,
        ),
        ("pipe(image)", f"with torch.autocast('cuda', dtype=torch.bfloat16):\n            {PLAINLY}", 0),
    ],
)
def test_half_precision_in_a_validation(validates: str, trains: str, num_told: int) -> None:
    code = HALF.replace("VALIDATES", validates).replace("TRAINS", trains)
    assert len(told("AMP007", code)) == num_told


# ── GRAD011: a graph that is let go of changes no result ──────────────────────────────────────

KEPT = """
class Trainer:
    def __init__(self):
        self.net, self.head = nn.LSTM(3, 3), nn.Linear(3, 3)
        self.opt = torch.optim.SGD(self.net.parameters(), 0.1)
    def update(self, x, y):
        LINES
trainer = Trainer()
for x, y in DataLoader(data):
    trainer.update(x, y)
"""
STEP = """self.opt.zero_grad()
loss.backward(retain_graph=True)
self.opt.step()"""
KEEPS = (
    "loss = F.mse_loss(self.head(x), y)",
    "out = self.head(x)\nloss = F.mse_loss(out, y)",
    "out, _ = self.net(x)\nloss = F.mse_loss(out, y)",
    "out, state = self.net(x)\nloss = F.mse_loss(out, y) + state[0].sum()",
    "loss = F.mse_loss(self.head(x.float()), y)\nself.shown = loss.item()",
    "out, state = self.net(x)\nloss = F.mse_loss(out, y)\nprint(loss)",
)


@pytest.mark.parametrize(
    "lines",
    [
        *(f"{each}\n{STEP}" for each in KEEPS),
        *("for _ in range(3):\n" + textwrap.indent(f"{each}\n{STEP}", "    ") for each in KEEPS),
        f"out, self.state = self.net(x)\nloss = F.mse_loss(out, y)\n{STEP}",
        f"self.out = self.head(x)\nloss = F.mse_loss(self.out, y)\n{STEP}",
    ],
)
def test_a_graph_that_a_function_lets_go_of(lines: str) -> None:
    code = KEPT.replace("LINES", textwrap.indent(lines, " " * 8).lstrip())
    assert told("GRAD011", code) == [ADVICE]


# ── DATA019, VALUE014, SEED002: what changes nothing ──────────────────────────────────────────

PARTS = """
from torch.utils.data import random_split
train_set, val_set = random_split(full, [80, 20])
LINES
"""
SET_TRAIN, SET_VAL = "train_set.dataset.transform = t_train", "val_set.dataset.transform = t_val"


@pytest.mark.parametrize(
    ("lines", "num_told"),
    [
        (f"{SET_TRAIN}\n{SET_VAL}", 1),
        (f"{SET_VAL}\n{SET_TRAIN}", 1),
        (SET_VAL, 1),
        (SET_TRAIN, 1),
        (f"{SET_TRAIN}\nx = train_set[0]\n{SET_VAL}", 2),
        (f"{SET_TRAIN}\nval_set.dataset.target_transform = t_val", 2),
    ],
)
def test_a_transform_that_the_next_line_replaces(lines: str, num_told: int) -> None:
    assert told("DATA019", PARTS.replace("LINES", lines)) == [BUG] * num_told


@pytest.mark.parametrize(
    ("line", "severities"),
    [
        ("pass", []),
        ("def test(model):\n    return model(3)", []),
        ("apply = lambda model: model(3)", []),
        ("model = nn.Linear(3, 3)\nprint(model)", []),
        ("print(model)", [BUG]),
        ("model(torch.ones(3))", [BUG]),
        ("def test():\n    return model(3)", [BUG]),
    ],
)
def test_nothing_that_is_kept_under_a_name_nobody_reads(line: str, severities: list[Severity]) -> None:
    code = "def train(config):\n    net = nn.Linear(3, 3)\n    print(net)\nmodel = train(3)\n" + line
    assert told("VALUE014", code) == severities


@pytest.mark.parametrize(
    ("lines", "severities"),
    [
        ("torch.backends.cudnn.benhmark = False", [ADVICE]),
        ("torch.backends.cudnn.determinstic = False", [ADVICE]),
        ("cudnn = torch.backends.cudnn\ncudnn.benchmarking = False", [ADVICE]),
        ("torch.backends.cudnn.enable = True", [BUG]),
        ("torch.backends.cudnn.benhmark = True", [BUG]),
        ("torch.backends.cudnn.determinstic = True", [BUG]),
        ("torch.backends.cudnn.enable = False", [BUG]),
        ("torch.backends.cudnn.benchmark = True\ntorch.backends.cudnn.benhmark = False", [BUG]),
        ("torch.backends.cudnn.benhmark = args.benchmark", [BUG]),
    ],
)
def test_a_switch_that_is_so_anyway(lines: str, severities: list[Severity]) -> None:
    assert told("SEED002", lines) == severities


# ── DATA006: an axis of size 1 ────────────────────────────────────────────────────────────────

ENCODER = """
class Encoder(nn.Module):
    def __init__(self, width, features):
        super().__init__()
        self.embedding = nn.Linear(features, width)
        self.linear = nn.Linear(width, OUT)
        self.dropout = nn.Dropout(0.1)
        self.norm = nn.LayerNorm(features)
    def forward(self, src):
        x = self.linear(self.embedding(src))
        LINES
        return res.reshape(res.shape[0], res.shape[2], res.shape[1])
"""


@pytest.mark.parametrize(
    ("out", "lines", "severities"),
    [
        ("1", "res = x + src", []),
        ("1", "res = src + x", []),
        ("1", "x = self.norm(self.dropout(x))\n        res = x + src", []),
        ("1", "res = self.dropout(x)", []),
        ("1", "res = F.relu(x)", []),
        ("1", "res = x", []),
        ("4", "res = src.unsqueeze(1)", []),
        ("4", "res = src[:, None]", []),
        ("4", "res = src.view(-1, 8, 1)", []),
        ("4", "res = torch.ones(4, 8, 1)", []),
        ("4", "res = x + src", [RISK]),
        ("features", "res = self.dropout(x)", [RISK]),
        ("1", "res = self.embedding(x)", [RISK]),
        ("4", "res = src.view(-1, 8, 2)", [RISK]),
        ("4", "res = src", [RISK]),
    ],
)
def test_axes_of_which_one_has_the_size_1(out: str, lines: str, severities: list[Severity]) -> None:
    assert told("DATA006", ENCODER.replace("OUT", out).replace("LINES", lines)) == severities


# ── VALUE013: a loader of the file in the place of the one that is given ──────────────────────

MEASURES = """
train_loader = DataLoader(train_set, batch_size=8, shuffle=True)
test_loader = DataLoader(test_set, batch_size=8)
net = nn.Linear(3, 3)
def measure(net, loader):
    right = 0
    LINES
        right += (net(x).argmax(1) == y).sum().item()
    return right
CALL
"""


@pytest.mark.parametrize(
    ("lines", "call", "severities"),
    [
        ("for x, y in train_loader:", "measure(net, test_loader)", [RISK]),
        ("for i, (x, y) in enumerate(train_loader):", "measure(net, test_loader)", [RISK]),
        ("for x, y in tqdm(train_loader):", "measure(net, test_loader)", [RISK]),
        ("for x, y in tqdm(train_loader, total=len(train_set)):", "print(measure(net, test_loader))", [RISK]),
        (
            "for i, (x, y) in enumerate(tqdm(train_loader)):",
            "accuracy = measure(net, loader=test_loader)",
            [RISK],
        ),
        ("net.eval()\n    for x, y in train_loader:", "measure(net, test_loader)", [RISK]),
        ("for x, y in train_loader:", "for epoch in range(3):\n    measure(net, test_loader)", [RISK]),
        ("for x, y in train_loader:", "def run():\n    return measure(net, test_loader)\nrun()", [RISK]),
        ("for x, y in train_loader:", "measure(net, DataLoader(test_set, batch_size=4))", [RISK]),
        ("for x, y in loader:", "measure(net, test_loader)", []),
        ("for x, y in train_loader:", "measure(net, train_loader)", []),
        ("for x, y in train_loader:", "measure(net, train_loader)\nmeasure(net, test_loader)", []),
        ("for x, y in train_loader:", "pass", []),
        ("for x, y in train_loader:", "measure(net, None)", []),
        ("print(len(loader))\n    for x, y in train_loader:", "measure(net, test_loader)", []),
        ("for (x, y), _ in zip(loader, train_loader):", "measure(net, test_loader)", []),
    ],
)
def test_a_loader_that_nothing_reads(lines: str, call: str, severities: list[Severity]) -> None:
    assert told("VALUE013", MEASURES.replace("LINES", lines).replace("CALL", call)) == severities


# ── VALUE001: a checkpoint that nothing saves ─────────────────────────────────────────────────

SAVES = """
def save(net, opt, epoch, path):
    LINES
save(nn.Linear(3, 3), None, 3, "net.pt")
"""
CHECKPOINT = "state = {'epoch': epoch, 'net': net.state_dict()}"


@pytest.mark.parametrize(
    ("lines", "severities"),
    [
        (CHECKPOINT, [QUESTION]),
        (f"{CHECKPOINT}\nprint(path)", [QUESTION]),
        (f"{CHECKPOINT}\ntorch.save(net, path)", [QUESTION]),
        ("state = {'net': net.state_dict(), 'opt': opt.state_dict()}\nprint('saved')", [QUESTION]),
        ("state = dict(net=net.state_dict(), epoch=epoch)", [QUESTION]),
        (f"if epoch > 1:\n    {CHECKPOINT}", [QUESTION]),
        ("checkpoint = {'net': net.state_dict()}\nreturn net", [QUESTION]),
        (f"for i in range(3):\n    {CHECKPOINT}", [QUESTION]),
        (f"{CHECKPOINT}\ntorch.save(state, path)", []),
        (f"{CHECKPOINT}\nreturn state", []),
        (f"{CHECKPOINT}\nkept.append(state)", []),
        (f"{CHECKPOINT}\nstate['opt'] = opt\ntorch.save(state, path)", []),
        (f"{CHECKPOINT}\nexec('torch.save(state, path)')", []),
        ("state = {'epoch': epoch}", []),
        (f"{CHECKPOINT}\ndef later():\n    torch.save(state, path)\nreturn later", []),
        ("best = net.state_dict()\nnet.load_state_dict(best)", []),
    ],
)
def test_a_checkpoint_that_nothing_saves(lines: str, severities: list[Severity]) -> None:
    assert told("VALUE001", SAVES.replace("LINES", textwrap.indent(lines, "    ").lstrip())) == severities
