# SPDX-License-Identifier: Apache-2.0
"""A name that a function rebinds by `global` or `nonlocal` may hold something else: what it was first is no longer sure."""

import pytest

from tests.support.told import told

FIRST = "net = nn.Linear(4, 3)\n"
LOOP = """
for x, y in loader:
    opt.zero_grad()
    loss = F.nll_loss(net(x), y)
    loss.backward()
    opt.step()
"""
REBOUND = {
    "assigned": "def swap():\n    global net\n    net = nn.Sequential(nn.Linear(4, 3), nn.LogSoftmax(1))\nswap()\n",
    "unpacked": "def swap():\n    global net, opt\n    net, opt = build()\nswap()\n",
    "wrapped": "def swap():\n    global net\n    net = nn.Sequential(net, nn.LogSoftmax(1))\nswap()\n",
    "of a context": "def swap():\n    global net\n    with built() as net:\n        pass\nswap()\n",
    "of a loop": "def swap():\n    global net\n    for net in nets:\n        pass\nswap()\n",
    "in an expression": "def swap():\n    global net\n    print(net := build())\nswap()\n",
    "imported": "def swap():\n    global net\n    from models import net\nswap()\n",
    "defined": "def swap():\n    global net\n    def net(x):\n        return head(x).log_softmax(1)\nswap()\n",
    "in a method": "class Setup:\n    def swap(self):\n        global net\n        net = build()\nSetup().swap()\n",
    "two functions deep": "def outer():\n    def swap():\n        global net\n        net = build()\n    swap()\nouter()\n",
}
KEPT = {
    "nothing": "",
    "read": "def show():\n    global net\n    print(net)\nshow()\n",
    "a name of its own": "def swap():\n    net = build()\n    return net\nswap()\n",
    "another name": "def swap():\n    global head\n    head = build()\nswap()\n",
}


@pytest.mark.parametrize("rebound", REBOUND.values(), ids=list(REBOUND))
def test_a_model_that_a_function_rebinds_is_unknown(rebound: str) -> None:
    assert not told("LOSS003", FIRST + rebound + LOOP)
    if rebound.startswith("def swap"):  # the function stands above what the model is first
        above = rebound.removesuffix("swap()\n")
        assert not told("LOSS003", above + FIRST + "swap()\n" + LOOP)


@pytest.mark.parametrize("kept", KEPT.values(), ids=list(KEPT))
def test_a_model_that_nothing_rebinds_is_what_it_was_first(kept: str) -> None:
    assert told("LOSS003", FIRST + kept + LOOP)


@pytest.mark.parametrize(("declared", "is_sure"), [("global net", False), ("pass", True)])
def test_a_function_reads_what_another_rebinds(declared: str, is_sure: bool) -> None:
    swap = f"def swap():\n    {declared}\n    net = build()\n"
    train = "def train(loader, opt):" + LOOP.replace("\n", "\n    ") + "\nswap()\ntrain(loader, opt)\n"
    assert bool(told("LOSS003", FIRST + swap + train)) is is_sure


@pytest.mark.parametrize(("declared", "is_sure"), [("nonlocal net", False), ("pass", True)])
def test_a_function_rebinds_a_name_of_the_one_around_it(declared: str, is_sure: bool) -> None:
    swap = f"def swap():\n    {declared}\n    net = build()\nswap()\n"
    body = (FIRST + swap + LOOP).replace("\n", "\n    ")
    assert bool(told("LOSS003", f"def main(loader, opt):\n    {body}\n")) is is_sure


@pytest.mark.parametrize("counted", ["steps = steps + 1", "steps += 1"])
def test_a_counter_of_all_functions_leaves_the_rest_as_it_is(counted: str) -> None:
    program = f"""
        net = nn.Linear(4, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        steps, best = 0, 0.0
        def train(loader):
            global steps, best
            for x, y in loader:
                loss = F.cross_entropy(net(x), y)
                loss.backward()
                opt.step()
                {counted}
            best = max(best, float(loss))
        for epoch in range(3):
            train(loader)
    """
    assert told("GRAD001", program)
