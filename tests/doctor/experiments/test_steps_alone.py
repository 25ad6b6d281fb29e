# SPDX-License-Identifier: Apache-2.0
"""Relations that no batch need be known for: they are tried at an optimizer's step, whatever its batch is."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
CODES = ("REL007", "REL011", "REL012")
MEMORY = """
import random
memory = [(torch.randn(4), number % 3, random.random(), torch.randn(4)) for number in range(200)]
late = nn.Linear(4, 3)
def sample():
    state, action, reward, state_after = zip(*random.sample(memory, 16))
    return torch.stack(state), torch.tensor(action), torch.tensor(reward), torch.stack(state_after)
actor, critic = nn.Linear(4, 2), nn.Linear(6, 1)
opt_actor, opt_critic = torch.optim.Adam(actor.parameters()), torch.optim.Adam(critic.parameters())
"""
Q_LEARNING = """
for number in range(8):
    acted = net(torch.randn(1, 4)).argmax(1).item()
    state, action, reward, state_after = sample()
    with torch.no_grad():
        target = reward + 0.9 * late(state_after).amax(1)
    if number < CLEARED:
        opt.zero_grad()
    loss = F.mse_loss(net(state).gather(1, action[:, None]).squeeze(1), target) + 0.1 * PENALTY
    loss.backward()
    opt.step()
    for slow, fast in zip(late.parameters(), net[2].parameters()):
        slow.data.mul_(0.9).add_(0.1 * fast.data.mean())
"""
HELD = {
    "a memory of transitions": Q_LEARNING.replace("PENALTY", "0").replace("CLEARED", "9"),
    "an actor and a critic in turn": """
for number in range(8):
    state, _, reward, state_after = sample()
    with torch.no_grad():
        target = reward + 0.9 * critic(torch.cat([state_after, actor(state_after)], 1)).squeeze(1)
    opt_critic.zero_grad()
    F.mse_loss(critic(torch.cat([state, torch.randn(16, 2)], 1)).squeeze(1), target).backward()
    opt_critic.step()
    opt_actor.zero_grad()
    (-critic(torch.cat([state, actor(state)], 1)).mean()).backward()
    opt_actor.step()
""",
    "two loaders": """
for _ in range(2):
    for (x, y), (u, v) in zip(loader, DataLoader(data, batch_size=8, shuffle=True)):
        opt.zero_grad()
        (F.cross_entropy(net(x), y) + F.cross_entropy(net(u), v)).backward()
        opt.step()
""",
    "a loss for two optimizers": """
first, second = torch.optim.Adam(net[0].parameters()), torch.optim.SGD(net[2].parameters(), lr=0.1)
for _ in range(2):
    for x, y in loader:
        first.zero_grad()
        second.zero_grad()
        F.cross_entropy(net(x), y).backward()
        first.step()
        second.step()
""",
    "the same without a loader": """
first, second = torch.optim.Adam(net[0].parameters()), torch.optim.SGD(net[2].parameters(), lr=0.1)
for _ in range(8):
    x = torch.randn(8, 4)
    first.zero_grad()
    second.zero_grad()
    F.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
    first.step()
    second.step()
""",
}
BROKEN = {
    "REL007": Q_LEARNING.replace("PENALTY", "0").replace("CLEARED", "1"),
    "REL011": Q_LEARNING.replace(
        "PENALTY", "sum(each.data.square().sum() for each in net.parameters())"
    ).replace("CLEARED", "9"),
}
# what the model decides comes back as its batch, so that a move of the weights may change that
NO_SLOPES = {
    "rewards of an environment": """
values = nn.Linear(4, 1)
opt = torch.optim.Adam([*net.parameters(), *values.parameters()])
for _ in range(8):
    state = torch.randn(16, 4)
    action = net(state)
    reward = torch.from_numpy(-(action.detach().numpy() ** 2).sum(1))
    opt.zero_grad()
    (F.mse_loss(values(state).squeeze(1), reward) + 0.1 * action.square().mean()).backward()
    opt.step()
""",
    "losses of two optimizers before either steps": """
for _ in range(8):
    state, _, reward, _ = sample()
    opt_actor.zero_grad()
    (-critic(torch.cat([state, actor(state)], 1)).mean()).backward()
    opt_critic.zero_grad()
    F.mse_loss(critic(torch.cat([state, torch.randn(16, 2)], 1)).squeeze(1), reward).backward()
    opt_critic.step()
    opt_actor.step()
""",
}


@pytest.mark.sliced(2)
@pytest.mark.parametrize("name", HELD)
def test_they_hold_in_a_right_program(name):
    watch = watched(MEMORY + HELD[name], CODES)
    assert watch.findings == []
    assert {code: watch.experiments.outcome(code) for code in CODES} == dict.fromkeys(CODES, ("held", None))


@pytest.mark.parametrize("code", BROKEN)
def test_what_is_broken_is_found(code):
    assert [each.code for each in watched(MEMORY + BROKEN[code], CODES).findings] == [code]


@pytest.mark.parametrize("name", NO_SLOPES)
def test_slopes_are_not_measured_where_the_loss_may_not_be_the_gradients(name):
    watch = watched(MEMORY + NO_SLOPES[name], CODES)
    assert watch.findings == []
    assert {code: watch.experiments.outcome(code)[0] for code in CODES} == {
        "REL007": "held",
        "REL011": "not tried",
        "REL012": "held",
    }


def test_an_index_to_ignore_is_not_changed_where_the_labels_are_not_known():
    code = """
class Ignoring(nn.Module):
    def __init__(self, ignore_index=-100):
        super().__init__()
        self.ignore_index = ignore_index
    def forward(self, logits, y):
        return F.cross_entropy(logits, y, ignore_index=self.ignore_index)
criterion = Ignoring()
for _ in range(8):
    state, action, _, _ = sample()
    opt.zero_grad()
    criterion(net(state), action).backward()
    opt.step()
"""
    assert watched(MEMORY + code, ("REL013",)).findings == []


AHEAD = """
import queue
import threading

def ahead(loader):
    waiting = queue.Queue(maxsize=2)
    def feed():
        for batch in loader:
            waiting.put(batch)
        waiting.put(None)
    threading.Thread(target=feed, daemon=True).start()
    while (batch := waiting.get()) is not None:
        yield batch

for epoch in range(3):
    for x, y in ahead(loader):
        opt.zero_grad()
        (F.cross_entropy(net(x), y) + 0.3 * sum(PART.square().sum() for each in net.parameters())).backward()
        opt.step()
"""


@pytest.mark.parametrize(("part", "outcome"), [("each", "held"), ("each.data", "broken")])
def test_steps_are_tried_where_a_thread_reads_batches_ahead(part, outcome):
    watch = watched(AHEAD.replace("PART", part), ("REL002", "REL011"))
    assert watch.experiments.outcome("REL011") == (outcome, None)
    assert watch.experiments.why_not_tried("REL002").startswith("a thread of the script's own takes")


def test_a_thread_that_waits_for_something_else_is_not_known_to_be_harmless():
    code = f"""
import threading
ended = threading.Event()
mine = threading.Thread(target=ended.wait, name="mine")
mine.start()
{AHEAD.replace("PART", "each")}
ended.set()
mine.join()
"""
    watch = watched(code, ("REL011",))
    assert watch.experiments.why_not_tried("REL011").startswith("other threads run (mine)")


def test_a_pool_of_threads_starts_anew_in_a_child():
    code = """
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(2)
def collated(rows):
    x, y = zip(*pool.map(lambda row: (row[0] + 0.0, row[1]), rows))
    return torch.stack(x), torch.stack(y)
for x, y in DataLoader(data, batch_size=8, collate_fn=collated):
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
net.eval()
total = 0.0
with torch.no_grad():
    for x, y in DataLoader(data, batch_size=8, collate_fn=collated):
        total += F.cross_entropy(net(x), y, reduction="sum").item()
print(f"loss {total / 32:.4f}")
pool.shutdown()
"""
    watch = watched(code, ("REL002", "REL008"))
    assert {each.outcome for each in watch.experiments.records.values()} == {"held"}
