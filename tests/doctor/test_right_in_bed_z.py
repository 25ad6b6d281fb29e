# SPDX-License-Identifier: Apache-2.0
"""What the twenty-first bed's strangers wrote rightly, in several wordings, each beside the fault it was taken for."""

import pytest

from tests.support.told import told
from truestep.doctor.finding import Severity

BUG, RISK = Severity.BUG, Severity.RISK


# ── PARAM001: layers of a library out of sight may have no weights ──

HELD = """
from einops.layers.torch import Rearrange
class Net(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.head = nn.Linear(3, 2)
        self.parts = PARTS
    def forward(self, x):
        return self.head(self.parts[0](x))
optimizer = torch.optim.SGD(Net(2).parameters(), 0.1)
"""


@pytest.mark.parametrize(
    ("parts", "severity"),
    [
        ("{i: nn.Sequential(Rearrange('a b -> b a'), Rearrange('a b -> b a')) for i in range(depth)}", []),
        ("[nn.Sequential(Rearrange('a b -> b a')) for _ in range(depth)]", []),
        ("[nn.Sequential(nn.ReLU(), Rearrange('a b -> b a')), nn.Sequential(nn.Tanh())]", []),
        ("[nn.Sequential(nn.Sequential(nn.Flatten()), nn.ReLU())]", []),
        ("{i: nn.Sequential(Rearrange('a b -> b a'), nn.Linear(3, 3)) for i in range(depth)}", [BUG]),
        ("[nn.Sequential(nn.ReLU(), nn.Sequential(nn.Linear(3, 3)))]", [BUG]),
        ("[nn.Sequential(*[nn.Linear(3, 3)])]", [BUG]),
        ("[nn.ModuleList([nn.Linear(3, 3) for _ in range(depth)])]", [BUG]),
        ("{nn.Parameter(torch.zeros(depth, 3)) for _ in range(depth)}", [BUG]),
    ],
)
def test_layers_of_a_library_out_of_sight(parts: str, severity: list[Severity]) -> None:
    assert told("PARAM001", HELD.replace("PARTS", parts)) == severity


# ── PARAM047: a class that is named as its base is ──

NAMED = """
from MODULE import BASE
class BASE(BASE):
    config_class = dict
class Model(BASE):
    def __init__(self, config):
        super().__init__(config)
        self.head = nn.Linear(3, 2)
    def forward(self, x):
        return self.head(x) * self.config.scale
"""


@pytest.mark.parametrize(
    "base", ["transformers.PreTrainedModel", "lightning.LightningModule", "mine.models.Base"]
)
def test_a_base_of_the_same_name(base: str) -> None:
    module, _, name = base.rpartition(".")
    assert told("PARAM047", NAMED.replace("MODULE", module).replace("BASE", name)) == []


@pytest.mark.parametrize("base", ["nn.Module", "Base"])
def test_a_base_in_sight(base: str) -> None:
    code = NAMED.partition("class Model")[2].replace("(BASE)", f"({base})")
    assert told("PARAM047", f"class Base(nn.Module):\n    pass\nclass Model{code}") == [BUG]


# ── SAVE016: the first epoch is counted on behind the line that reads it ──

RESUMED = """
net = nn.Linear(3, 2); optimizer = torch.optim.SGD(net.parameters(), 0.1)
first = 0
if os.path.isfile("last.pt"):
    checkpoint = torch.load("last.pt")
    net.load_state_dict(checkpoint["net"]); optimizer.load_state_dict(checkpoint["optimizer"])
    first = checkpoint["epoch"]
    COUNTED
for epoch in range(first, 90):
    for x, y in loader:
        optimizer.zero_grad(); F.cross_entropy(net(x), y).backward(); optimizer.step()
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": SAVED}, "last.pt")
"""


@pytest.mark.parametrize(
    ("counted", "saved", "severity"),
    [
        ("first += 1", "epoch", []),
        ("print(first)\n    first += 1", "epoch", []),
        ("if checkpoint['over']: first += 1", "epoch", []),
        ("first += skipped", "epoch", []),
        ("pass", "epoch + 1", []),
        ("first += 1; first -= 1", "epoch + 1", []),
        ("pass", "epoch", [RISK]),
        ("first += 2", "epoch", [RISK]),
        ("first += 1", "epoch + 1", [RISK]),
    ],
)  # fmt: skip
def test_a_first_epoch_that_is_counted_on(counted: str, saved: str, severity: list[Severity]) -> None:
    assert told("SAVE016", RESUMED.replace("COUNTED", counted).replace("SAVED", saved)) == severity


# ── LOSS026: a collate function that no loader is given ──

COLLATED = """
from torch.nn.utils.rnn import pad_sequence
def collate(rows):
    labels = pad_sequence([each[1] for each in rows], batch_first=True, padding_value=13)
    return pad_sequence([each[0] for each in rows], batch_first=True), labels
loader = DataLoader(LOADED)
net = nn.Linear(3, 14); optimizer = torch.optim.SGD(net.parameters(), 0.1)
for data, labels in loader:
    optimizer.zero_grad(); F.cross_entropy(net(data), labels).backward(); optimizer.step()
"""


@pytest.mark.parametrize(
    ("loaded", "severity"),
    [
        ("rows, batch_size=8", []),
        ("rows, batch_size=8, shuffle=True  # , collate_fn=collate\n", []),
        ("rows, batch_size=8, collate_fn=other", []),
        ("rows, batch_size=8, collate_fn=collate", [RISK]),
        ("rows, 8, collate_fn=partial(collate)", [RISK]),
        ("rows, 8, collate_fn=lambda rows: collate(rows)", [RISK]),
    ],
)
def test_a_collate_function_that_no_loader_is_given(loaded: str, severity: list[Severity]) -> None:
    assert told("LOSS026", COLLATED.replace("LOADED", loaded)) == severity
