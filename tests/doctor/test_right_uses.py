# SPDX-License-Identifier: Apache-2.0
"""Right programs of strangers, and the plain mistake beside each: what is left out, copied, optimized, drawn from and needed."""

import re
import textwrap

import pytest

from tests.support.told import loud, told
from truestep.doctor.linting import read_text, read_texts


def in_function(code: str) -> str:
    return "def main(loader, device):\n" + textwrap.indent(code, "    ") + "\nmain(loader, device)\n"


# ── PARAM047: lines that a listing leaves out ─────────────────────────────────────────────────

LISTING = """
class Scale(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(4))
        {rest}
    def forward(self, x):
        return x.view(-1, self.width) * self.gain
"""
LEFT_OUT = ("...", "# ...", "# ... as above", "# etc.", "self.layers = nn.ModuleList()\n        ...")


@pytest.mark.parametrize("rest", LEFT_OUT)
def test_a_listing_that_leaves_lines_out(rest: str) -> None:
    listing = LISTING.format(rest=rest)
    assert not told("PARAM047", listing)
    page = f"# How\\n\\n```python\\nimport torch\\nfrom torch import nn\\n{listing}```\\n".replace(
        "\\n", "\n"
    )
    assert not [each for each in read_text(page, "page.md").findings if each.code == "PARAM047"]


@pytest.mark.parametrize(
    "rest", ["pass", "self.layers = [...]", "self.first = x[..., 0]", "# the gain of each"]
)
def test_a_class_of_which_nothing_is_left_out(rest: str) -> None:
    assert loud("PARAM047", LISTING.format(rest=rest))


# ── SAVE013: a state that is a copy, or kept anew in each epoch ───────────────────────────────

EPOCHS = """
best, state = 0.0, None
for epoch in range(9):
    for x, y in loader:
        opt.zero_grad()
        F.mse_loss(net(x), y).backward()
        opt.step()
    score = evaluate(net)
{keep}
torch.save(state, "last.pt")
"""
COPIED = (
    "if score > best:\n    best, state = score, net.cpu().state_dict()\n    net.cuda()",
    "if score > best:\n    state = net.to('cpu').state_dict()\n    net = net.to(device)",
    "if score > best:\n    net.cpu()\n    state = net.state_dict()\n    net.to(device)",
    "if score > best:\n    net.to('cpu')\n    best, state = score, net.state_dict()\nnet.cuda()",
)
ANEW = (
    "if torch.cuda.device_count() > 1:\n    state = net.module.state_dict()\nelse:\n    state = net.state_dict()",
    "if isinstance(net, nn.DataParallel):\n    state = net.module.state_dict()\nelse:\n    state = net.state_dict()",
    "if args.parallel:\n    state = net.module.state_dict()\nelse:\n    state = net.state_dict()",
    "if hasattr(net, 'module'):\n    state = net.module.state_dict()\nelse:\n    state = net.state_dict()",
)
SHARED = (
    "if score > best:\n    best, state = score, net.state_dict()",
    (
        "if score > best:\n    best = score\n    if args.parallel:\n        state = net.module.state_dict()\n"
        "    else:\n        state = net.state_dict()"
    ),
    "if score > best:\n    state = net.cpu().state_dict()",
)


@pytest.mark.parametrize("place", [str, in_function])
@pytest.mark.parametrize("keep", [*COPIED, *ANEW])
def test_a_state_that_no_later_step_changes(keep: str, place: type[str]) -> None:
    assert not loud("SAVE013", place(EPOCHS.format(keep=textwrap.indent(keep, "    "))))


@pytest.mark.parametrize("place", [str, in_function])
@pytest.mark.parametrize("keep", SHARED)
def test_a_state_that_later_steps_change(keep: str, place: type[str]) -> None:
    assert loud("SAVE013", place(EPOCHS.format(keep=textwrap.indent(keep, "    "))))


# ── OLD008: a loss that another library makes ─────────────────────────────────────────────────

WRAPPED = """
from warpctc_pytorch import CTCLoss
class Costs(nn.Module):
    def __init__(self):
        super().__init__()
        self.ctc = CTCLoss()
    def forward(self, x, y):
        return self.ctc(x, y)
"""
FOREIGN = (
    "from warpctc_pytorch import CTCLoss\ncriterion = CTCLoss()\nloss = criterion(net(x), y)\nprint(loss.data[0])",
    "import warpctc_pytorch as warp\nloss = warp.CTCLoss()(net(x), y)\nprint(loss.data[0])",
    WRAPPED + "criterion = Costs()\nloss = criterion(net(x), y)\nprint(loss.data[0])",
    WRAPPED + "class Job:\n    def __init__(self, net):\n        self.net, self.criterion = net, Costs()\n"
    "    def run(self, x, y):\n        loss = self.criterion(self.net(x), y)\n        loss.backward()\n        return loss.data[0]",
    WRAPPED
    + "criterion = Costs()\nloss = criterion(net(x), y) / len(x)\nloss.backward()\nprint(loss.data[0])",
)
OWN = (
    "loss = F.cross_entropy(net(x), y)\nprint(loss.data[0])",
    "criterion = nn.MSELoss()\nloss = criterion(net(x), y)\nprint(loss.data[0])",
    "def log(loss):\n    print(loss.data[0])",
    (
        "class Own(nn.Module):\n    def forward(self, x, y):\n        return (x - y).pow(2).mean()\n"
        "criterion = Own()\nloss = criterion(net(x), y)\nprint(loss.data[0])"
    ),
)


@pytest.mark.parametrize("code", FOREIGN)
def test_a_loss_of_another_library_has_its_own_shape(code: str) -> None:
    assert not told("OLD008", code)


@pytest.mark.parametrize("code", OWN)
def test_a_scalar_that_is_indexed(code: str) -> None:
    assert loud("OLD008", code)


# ── EVAL003: what is optimized is no part of the model ────────────────────────────────────────

LOOK = """
def look(net, image):
    net.eval()
    return net(image).argmax(1)
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.LazyLinear(5))
{made}
for step in range(500):
    loss = net(patch.unsqueeze(0)).max()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(look(net, patch.detach().unsqueeze(0)))
"""
PATCHES = (
    "patch = torch.rand(3, 32, 32, requires_grad=True)\nopt = torch.optim.Adam([patch], lr=0.03)",
    "patch = nn.Parameter(torch.rand(3, 32, 32))\nopt = torch.optim.LBFGS([patch])",
    "patch = torch.rand(3, 32, 32).requires_grad_()\nparams = [patch]\nopt = torch.optim.SGD(params, lr=0.1)",
    "patch = torch.rand(3, 9, 9, requires_grad=True)\nopt = torch.optim.Adam([{'params': [patch], 'lr': 0.1}])",
    "patch = torch.rand(3, 9, 9, requires_grad=True)\nopt = torch.optim.Adam(params=(patch,))",
)
WHOLE = (
    "patch = torch.rand(3, 32, 32)\nopt = torch.optim.Adam(net.parameters())",
    "patch = torch.rand(3, 9, 9, requires_grad=True)\nopt = torch.optim.Adam([patch, *net.parameters()])",
    "patch = torch.rand(3, 9, 9)\nopt = torch.optim.Adam([net[0].weight, net[1].weight])",
)


@pytest.mark.parametrize("place", [str, in_function])
@pytest.mark.parametrize("made", PATCHES)
def test_a_model_that_the_optimizer_does_not_hold(made: str, place: type[str]) -> None:
    assert not loud("EVAL003", place(LOOK.format(made=made)))


@pytest.mark.parametrize("place", [str, in_function])
@pytest.mark.parametrize("made", WHOLE)
def test_a_model_that_the_optimizer_holds(made: str, place: type[str]) -> None:
    assert loud("EVAL003", place(LOOK.format(made=made)))


# ── DATA002: a loader that nothing draws from, and whole batches that a loss needs ────────────

MADE = "val_loader = torch.utils.data.DataLoader(val_set, batch_size=size, drop_last=True)\n"
DRAWN = "for x, y in val_loader:\n    right += (net(x).argmax(1) == y).sum().item()\n"
OTHER = "for x, y in whole_loader:\n    right += (net(x).argmax(1) == y).sum().item()\n"
UNUSED = (
    MADE + OTHER,
    "def main(val_set, size, loader):\n" + textwrap.indent(MADE + OTHER, "    ") + "    return right\n",
    "class Job:\n    def __init__(self, val_set, size):\n        self." + MADE + OTHER,
)
PAIRS = """
class Pairs(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
    def forward(self, a, b):
        both = torch.cat([a, b])
        return F.cross_entropy(both @ both.T - torch.eye(2 * self.size), torch.arange(2 * self.size).roll(self.size))
"""
FIXED = (
    "criterion = Pairs(size)\n"
    + MADE
    + "for x, y in val_loader:\n    total += criterion(net(x), net(y)).item()\n",
    "criterion = Pairs(size=options.batch)\n"
    + MADE.replace("=size", "=options.batch")
    + "for x, y in val_loader:\n    total += criterion(net(x), net(y)).item()\n",
    "def main(options):\n    size = options.batch\n    criterion = Pairs(options.batch)\n"
    + textwrap.indent(
        MADE + "for x, y in val_loader:\n    total += criterion(net(x), net(y)).item()\n", "    "
    ),
)
READ = (
    MADE + DRAWN,
    MADE + "print(evaluate(net, val_loader))\n",
    "def loaders(val_set, size):\n" + textwrap.indent(MADE, "    ") + "    return val_loader\n",
    "class Job:\n    def __init__(self, val_set, size):\n        self." + MADE
    + "    def run(self, net):\n" + textwrap.indent(DRAWN.replace("val_l", "self.val_l"), "        "),
    "criterion = nn.CrossEntropyLoss()\n" + MADE + "for x, y in val_loader:\n    total += criterion(net(x), y).item()\n",
)  # fmt: skip


@pytest.mark.parametrize("code", [*UNUSED, *[PAIRS + each for each in FIXED]])
def test_a_last_batch_that_no_figure_lacks(code: str) -> None:
    assert not loud("DATA002", code)


@pytest.mark.parametrize("code", READ)
def test_a_last_batch_that_is_left_out(code: str) -> None:
    assert loud("DATA002", code)


@pytest.mark.parametrize(
    "use", ["from data import val_loader\nprint(val_loader)\n", "import data\nevaluate(data.val_loader)\n"]
)
def test_a_loader_that_another_file_draws_from(use: str) -> None:
    made = "import torch\nfrom sets import val_set, size\n" + MADE
    assert [each.code for each in read_texts({"data.py": made, "main.py": use}).findings].count(
        "DATA002"
    ) == 1


# ── VALUE001: a name that begins with a module's ──────────────────────────────────────────────

WRITER = """
import datetime, math, random
class Fit:
    def train(self, net, loader, opt):
        {value}
        begun = time.time(), datetime.date.today(), math.pi, random.random()
        for x, y in loader:
            opt.zero_grad()
            loss = (net(x) - y).pow(2).mean()
            loss.backward()
            opt.step()
        print(begun)
"""
OF_MODULES = (
    "time_str = time.strftime('%H%M')",
    "datetime_now = datetime.datetime.now()",
    "math_scale = math.sqrt(2 * math.pi)",
    "random_seed = random.randint(0, 9)",
    "timestamp = f'{time.time():.0f}'",
)


@pytest.mark.parametrize("value", OF_MODULES)
def test_a_value_that_a_module_gives_replaces_none(value: str) -> None:
    assert not told("VALUE001", WRITER.format(value=value))
    flat = WRITER.replace("class Fit:\n    ", "").replace("self, ", "").replace("\n    ", "\n")
    assert not told("VALUE001", flat.format(value=value))


@pytest.mark.parametrize(
    "value", ["loader_first = loader.first()", "loader_list = flat(loader)", "loader_rest = loader[1:]"]
)
def test_a_value_that_replaces_one_that_is_used(value: str) -> None:
    assert told("VALUE001", WRITER.format(value=value))


# ── GRAD011: a graph that is gone back through behind the loop ────────────────────────────────

CRITICS = """
gen, critic = nn.Linear(4, 4), nn.Linear(4, 1)
gen_opt, critic_opt = torch.optim.Adam(gen.parameters()), torch.optim.Adam(critic.parameters())
for real in loader:
    {loop}
        fake = gen(torch.randn(8, 4))
        loss = critic({seen}).mean() - critic(real).mean()
        critic_opt.zero_grad()
        loss.backward(retain_graph=True)
        critic_opt.step()
    {behind}
    gen_opt.zero_grad()
    gen_loss.backward()
    gen_opt.step()
"""
LOOPS = (
    "for _ in range(5):",
    "for step in range(args.steps):",
    "while critic(real).mean() < 1:",
    "for other in others:",
)
BEHIND = (
    "gen_loss = -critic(fake).mean()",
    "score = critic(fake)\n    gen_loss = F.softplus(-score).mean()",
    "gen_loss = F.mse_loss(fake, real) - critic(fake).mean()",
)
ANEW_MADE = (
    "fake = gen(torch.randn(8, 4))\n    gen_loss = -critic(fake).mean()",
    "gen_loss = gen(real).mean()",
)


@pytest.mark.parametrize("place", [str, in_function])
@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("loop", LOOPS)
def test_the_last_graph_of_an_inner_loop_is_used_behind_it(loop: str, behind: str, place: type[str]) -> None:
    assert not told("GRAD011", place(CRITICS.format(loop=loop, behind=behind, seen="fake")))


MADE_BEFORE = (
    "fake = gen(torch.randn(8, 4))\n    for _ in range(5):",
    "first = gen(torch.randn(8, 4))\n    fake = first.view(8, 4)\n    for step in range(args.steps):",
    "noise = torch.randn(8, 4)\n    fake = gen(noise)\n    while critic(real).mean() < 1:",
)


@pytest.mark.parametrize("cut", ["", ".detach()"])
@pytest.mark.parametrize("loop", MADE_BEFORE)
def test_each_iteration_goes_back_through_a_graph_from_before(loop: str, cut: str) -> None:
    code = CRITICS.format(loop=loop, behind=ANEW_MADE[0], seen="fake" + cut)
    code = code.replace("        fake = gen(torch.randn(8, 4))\n        loss", "        loss")
    assert bool(told("GRAD011", code)) is bool(cut)


@pytest.mark.parametrize("behind", ANEW_MADE)
@pytest.mark.parametrize("loop", LOOPS)
def test_the_graphs_of_an_inner_loop_are_kept_for_nothing(loop: str, behind: str) -> None:
    assert told("GRAD011", CRITICS.format(loop=loop, behind=behind, seen="fake"))


@pytest.mark.parametrize(
    "clear", ["gen.zero_grad()", "gen_opt.zero_grad()", "gen.zero_grad(set_to_none=True)"]
)
@pytest.mark.parametrize("loop", LOOPS)
def test_a_critic_that_is_never_cleared_is_what_is_accused(loop: str, clear: str) -> None:
    code = CRITICS.format(loop=loop, behind=BEHIND[0], seen="fake")
    code = code.replace("        critic_opt.zero_grad()\n", "").replace("gen_opt.zero_grad()", clear)
    assert told("GRAD001", code)
    assert not told("GRAD003", code)


HELD = (
    "{0}.parameters()",
    "list({0}.parameters())",
    "filter(lambda p: p.requires_grad, {0}.parameters())",
    "[p for p in {0}.parameters() if p.requires_grad]",
    "[{{'params': {0}.parameters()}}]",
)


@pytest.mark.parametrize("clear", ["gen.zero_grad()", "gen_opt.zero_grad()"])
@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("made", ["in sight", "elsewhere", "handed in", "attributes"])
def test_the_right_clear_of_the_generator_is_not_accused(made: str, held: str, clear: str) -> None:
    code = CRITICS.format(loop=LOOPS[0], behind=BEHIND[0], seen="fake").replace(
        "        critic_opt.zero_grad()\n", ""
    )
    code = code.replace("gen_opt.zero_grad()", clear)
    for name in ("gen", "critic"):
        code = code.replace(f"{name}.parameters()", held.format(name), 1)
    if made == "elsewhere":
        code = "from nets import make\n" + code.replace(
            "nn.Linear(4, 4), nn.Linear(4, 1)", "make(1), make(2)"
        )
    if made == "handed in":
        loop = code[code.index("for real in loader") :]
        code = "def train(gen, critic, gen_opt, critic_opt, loader):\n" + textwrap.indent(loop, "    ")
    if made == "attributes":
        code = re.sub(r"\b(gen|critic|gen_opt|critic_opt)\b", r"self.\1", code)
        code = "class Job:\n    def __init__(self, loader):\n" + textwrap.indent(code, "        ")
    assert not told("GRAD003", code)
    assert made != "in sight" or told("GRAD001", code)
