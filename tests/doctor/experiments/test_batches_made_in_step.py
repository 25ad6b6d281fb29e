# SPDX-License-Identifier: Apache-2.0
"""Batches that a script makes in its step: rows by an index, get_batch(), generators, replay memories, noise."""

import pytest
from doctor.experiments.test_relations import pytestmark as needs_forks
from doctor.experiments.test_relations import watched

pytestmark = needs_forks
CODES = ("REL002", "REL004")
DATA = """
import copy, random
import numpy as np
X, Y = torch.randn(64, 4), torch.arange(64) % 3
def step(loss, opt=opt):
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
# each is held by all four relations
HELD = {
    "slices of an epoch": """
for epoch in range(3):
    order = torch.randperm(64)
    for first in range(0, 64, 8):
        rows = order[first : first + 8]
        step(F.cross_entropy(net(X[rows]), Y[rows]))
""",
    "get_batch": """
def get_batch():
    rows = torch.randint(64, (8,))
    return X[rows], Y[rows]
for number in range(12):
    x, y = get_batch()
    step(F.cross_entropy(net(x), y))
""",
    "rows of numpy's": """
inputs, labels = X.numpy(), Y.numpy()
for number in range(12):
    rows = np.random.choice(64, 8, replace=False)
    step(F.cross_entropy(net(torch.from_numpy(inputs[rows])), torch.as_tensor(labels[rows])))
""",
    "a generator": """
def batches():
    drawn = np.random.default_rng(0)
    while True:
        rows = drawn.permutation(64)[:8]
        yield {"x": X[rows], "y": Y[rows]}
source = batches()
for number in range(12):
    batch = next(source)
    step(F.cross_entropy(net(batch["x"]), batch["y"]))
""",
    "text by windows": """
text = torch.randint(20, (500,))
net = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def get_batch():
    starts = torch.randint(480, (6,))
    return torch.stack([text[i : i + 5] for i in starts]), torch.stack([text[i + 1 : i + 6] for i in starts])
for number in range(12):
    x, y = get_batch()
    logits = net(x)
    step(F.cross_entropy(logits.view(-1, 20), y.view(-1)), opt)
""",
    "noise of a diffusion": """
net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for number in range(12):
    x, t, noise = X[torch.randint(64, (8,))], torch.rand(8, 1), torch.randn(8, 4)
    noisy = (1 - t) * x + t * noise
    step(F.mse_loss(net(torch.cat([noisy, t], 1)), noise), opt)
""",
    "deep Q": """
from collections import deque
q = nn.Linear(4, 3)
target = copy.deepcopy(q)
opt = torch.optim.Adam(q.parameters())
memory, state = deque(maxlen=200), np.random.randn(4).astype("float32")
for number in range(40):
    with torch.no_grad():
        action = int(q(torch.from_numpy(state)[None]).argmax()) if random.random() > 0.3 else random.randrange(3)
    following = (state * 0.9 + np.random.randn(4) * 0.1).astype("float32")
    memory.append((state, action, float(following[action]), following, float(random.random() < 0.2)))
    state = following
    if len(memory) < 16:
        continue
    s, a, r, n, done = (torch.as_tensor(np.array(each)) for each in zip(*random.sample(memory, 8)))
    with torch.no_grad():
        aim = r.float() + 0.9 * (1 - done.float()) * target(n).max(1).values
    step(F.smooth_l1_loss(q(s).gather(1, a[:, None]).squeeze(1), aim), opt)
    if number % 10 == 0:
        target.load_state_dict(q.state_dict())
""",
    "Q values by two indices": """
for number in range(12):
    rows = torch.randint(64, (8,))
    s, a, r = X[rows], Y[rows], torch.randn(8)
    step(F.mse_loss(net(s)[torch.arange(8), a], r))
""",
    "actor and critic of one memory": """
actor, critic = nn.Linear(4, 2), nn.Linear(6, 1)
opt_a, opt_c = torch.optim.Adam(actor.parameters()), torch.optim.Adam(critic.parameters())
S, A, R = torch.randn(100, 4), torch.randn(100, 2), torch.randn(100, 1)
for number in range(12):
    rows = np.random.randint(100, size=8)
    s, a, r, n = S[rows], A[rows], R[rows], S[(rows + 1) % 100]
    with torch.no_grad():
        aim = r + 0.9 * critic(torch.cat([n, actor(n)], 1))
    step(F.mse_loss(critic(torch.cat([s, a], 1)), aim), opt_c)
    step(-critic(torch.cat([s, actor(s)], 1)).mean(), opt_a)
""",
    "clipped policies": """
actor, critic = nn.Linear(4, 3), nn.Linear(4, 1)
opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()])
for rollout in range(3):
    with torch.no_grad():
        s = torch.randn(32, 4)
        policy = torch.distributions.Categorical(logits=actor(s))
        a = policy.sample()
        old, value, reward = policy.log_prob(a), critic(s).squeeze(1), torch.randn(32)
        advantage = reward - value
        advantage = (advantage - advantage.mean()) / advantage.std()
    for epoch in range(2):
        for rows in torch.randperm(32).split(8):
            policy = torch.distributions.Categorical(logits=actor(s[rows]))
            ratio = (policy.log_prob(a[rows]) - old[rows]).exp()
            gain = torch.min(ratio * advantage[rows], ratio.clamp(0.8, 1.2) * advantage[rows]).mean()
            loss = F.mse_loss(critic(s[rows]).squeeze(1), reward[rows]) - gain - 0.01 * policy.entropy().mean()
            step(loss, opt)
""",
    "weights of a memory": """
weights = torch.rand(64)
for number in range(12):
    rows = torch.multinomial(weights, 8)
    loss = F.cross_entropy(net(X[rows]), Y[rows], reduction="none")
    step((loss * weights[rows]).sum() / weights[rows].sum())
""",
    "masks": """
for number in range(12):
    rows = torch.randint(64, (8,))
    mask = torch.rand(8, 4) < 0.5
    opt.zero_grad()
    loss = F.cross_entropy(net(X[rows] * mask), Y[rows])
    loss.backward()
    opt.step()
    shown = (net(X[rows]).argmax(1) == Y[rows]).float().mean().item()
""",
}
# examples meet, or the batch is not told: nothing is said
SILENT = {
    "a generative pair": """
made, judge = nn.Linear(2, 4), nn.Linear(4, 1)
opt_m, opt_j = torch.optim.Adam(made.parameters()), torch.optim.Adam(judge.parameters())
for number in range(12):
    real, fake = X[torch.randint(64, (8,))], made(torch.randn(8, 2))
    loss = F.binary_cross_entropy_with_logits(judge(real), torch.ones(8, 1))
    step(loss + F.binary_cross_entropy_with_logits(judge(fake.detach()), torch.zeros(8, 1)), opt_j)
    step(F.binary_cross_entropy_with_logits(judge(fake), torch.ones(8, 1)), opt_m)
""",
    "a penalised critic": """
made, judge = nn.Linear(2, 4), nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
opt_m, opt_j = torch.optim.Adam(made.parameters()), torch.optim.Adam(judge.parameters())
for number in range(24):
    real = X[torch.randint(64, (8,))]
    fake = made(torch.randn(8, 2)).detach()
    share = torch.rand(8, 1)
    between = (share * real + (1 - share) * fake).requires_grad_()
    slope = torch.autograd.grad(judge(between).sum(), between, create_graph=True)[0]
    step(judge(fake).mean() - judge(real).mean() + 10 * (slope.norm(dim=1) - 1).square().mean(), opt_j)
    if number % 5 == 4:
        step(-judge(made(torch.randn(8, 2))).mean(), opt_m)
""",
    "contrast of two views": """
for number in range(12):
    x = X[torch.randint(64, (8,))]
    one, two = (F.normalize(net(x + 0.1 * torch.randn_like(x)), dim=1) for _ in range(2))
    step(F.cross_entropy(one @ two.T / 0.5, torch.arange(8)))
""",
    "learning to learn": """
for number in range(8):
    slope = torch.randn(())
    total = 0.0
    for task in range(3):
        x, x_new = torch.randn(5, 4), torch.randn(7, 4)
        weights = dict(net.named_parameters())
        inner = F.mse_loss(torch.func.functional_call(net, weights, (x,)).sum(1), slope * x[:, 0])
        grads = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
        weights = {name: each - 0.1 * grad for (name, each), grad in zip(weights.items(), grads)}
        total = total + F.mse_loss(torch.func.functional_call(net, weights, (x_new,)).sum(1), slope * x_new[:, 0])
    step(total)
""",
    "self-play": """
for number in range(12):
    opt.zero_grad()
    states, moves = [], []
    board = torch.zeros(4)
    for turn in range(6):
        logits = net(board)
        move = torch.distributions.Categorical(logits=logits).sample()
        states.append(board)
        moves.append(move)
        board = -board.roll(1)
        board[move] += 1
    won = torch.tensor([(-1.0) ** turn for turn in range(6)]) * random.choice([-1, 1])
    chosen = torch.distributions.Categorical(logits=net(torch.stack(states))).log_prob(torch.stack(moves))
    (-chosen * won).mean().backward()
    opt.step()
""",
    "a rollout with gradients": """
for number in range(8):
    state, chosen, rewards = np.random.randn(4).astype("float32"), [], []
    for turn in range(6):
        policy = torch.distributions.Categorical(logits=net(torch.from_numpy(state)))
        action = policy.sample()
        chosen.append(policy.log_prob(action))
        state = (0.9 * state + 0.1 * action.item()).astype("float32")
        rewards.append(float(state.sum()))
    returns = torch.tensor(np.cumsum(rewards[::-1])[::-1].copy())
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    step(-(torch.stack(chosen) * returns).mean())
""",
    "sorted classes and drawn features": """
kinds = torch.arange(9) % 3
middles = torch.randn(3, 4)
for number in range(12):
    x = middles[kinds] + 0.1 * torch.randn(9, 4)
    step(F.cross_entropy(net(x), kinds))
""",
    "time first": """
cell = nn.LSTM(4, 8)
head = nn.Linear(8, 3)
opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
for number in range(12):
    x, y = torch.randn(6, 5, 4), torch.randint(3, (6, 5))
    out = head(cell(x)[0])
    step(F.cross_entropy(out.reshape(-1, 3), y.reshape(-1)), opt)
""",
    "lengths as a list": """
table, cell, head = nn.Embedding(20, 4), nn.GRU(4, 8, batch_first=True), nn.Linear(8, 3)
opt = torch.optim.SGD([*table.parameters(), *cell.parameters(), *head.parameters()], lr=0.1)
for number in range(12):
    lengths = torch.randint(1, 7, (8,)).sort(descending=True).values
    x, y = torch.randint(20, (8, int(lengths[0]))), torch.randint(3, (8,))
    packed = nn.utils.rnn.pack_padded_sequence(table(x), lengths.tolist(), batch_first=True)
    step(F.cross_entropy(head(cell(packed)[1][-1]), y), opt)
""",
    "each example by its number": """
for number in range(12):
    rows = torch.randint(64, (8,))
    logits, labels = net(X[rows]), Y[rows].tolist()
    step(sum(F.cross_entropy(logits[i], torch.tensor(labels[i])) for i in range(8)) / 8)
""",
    "two halves by place": """
for number in range(12):
    rows = torch.randint(64, (8,))
    strong, weak = net(torch.cat([X[rows], X[rows] + 0.1 * torch.randn(8, 4)])).chunk(2)
    step(F.cross_entropy(weak, Y[rows]) + F.mse_loss(strong.softmax(1), weak.detach().softmax(1)))
""",
    "mixed examples": """
for number in range(12):
    rows, other = torch.randint(64, (8,)), torch.randperm(8)
    x, y, share = X[rows], Y[rows], np.random.beta(1, 1)
    logits = net(share * x + (1 - share) * x[other])
    step(share * F.cross_entropy(logits, y) + (1 - share) * F.cross_entropy(logits, y[other]))
""",
    "mixed features": """
first, last = nn.Linear(4, 8), nn.Linear(8, 3)
opt = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.1)
for number in range(12):
    rows, other = torch.randint(64, (8,)), torch.from_numpy(np.random.default_rng(number).permutation(8))
    hidden, y = first(X[rows]), Y[rows]
    logits = last(0.7 * hidden + 0.3 * hidden[other])
    step(0.7 * F.cross_entropy(logits, y) + 0.3 * F.cross_entropy(logits, y[other]), opt)
""",
    "targets by way of numpy": """
for number in range(12):
    rows = torch.randint(64, (8,))
    logits = net(X[rows])
    soft = np.exp(logits.detach().numpy() * 2)
    soft = torch.from_numpy(soft / soft.sum(1, keepdims=True))
    step(F.cross_entropy(logits, soft) + F.cross_entropy(logits, Y[rows]))
""",
    "a momentum encoder with a queue": """
slow = copy.deepcopy(net)
queue = F.normalize(torch.randn(16, 3), dim=1)
for number in range(12):
    x = X[torch.randint(64, (8,))]
    with torch.no_grad():
        for a, b in zip(slow.parameters(), net.parameters()):
            a.mul_(0.9).add_(b, alpha=0.1)
        keys = F.normalize(slow(x + 0.1 * torch.randn(8, 4)), dim=1)
    asked = F.normalize(net(x + 0.1 * torch.randn(8, 4)), dim=1)
    logits = torch.cat([(asked * keys).sum(1, keepdim=True), asked @ queue.T], 1)
    step(F.cross_entropy(logits, torch.zeros(8, dtype=torch.long)))
    queue = torch.cat([keys, queue])[:16]
""",
    "a carried state": """
cell, head = nn.GRUCell(4, 8), nn.Linear(8, 3)
opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
state = torch.zeros(8, 8)
for number in range(12):
    state = cell(torch.randn(8, 4), state.detach())
    step(F.cross_entropy(head(state), torch.randint(3, (8,))), opt)
""",
    "bodies that attract one another": """
force = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
opt = torch.optim.SGD(force.parameters(), lr=0.1)
for number in range(12):
    place, pull = torch.randn(6, 2), torch.randn(6, 2)
    step(F.mse_loss(force(place[:, None] - place[None]).sum(1), pull), opt)
""",
    "positions of one sequence": """
table, places, head = nn.Embedding(20, 8), nn.Embedding(10, 8), nn.Linear(8, 20)
opt = torch.optim.SGD([*table.parameters(), *places.parameters(), *head.parameters()], lr=0.1)
for number in range(12):
    x = torch.randint(20, (7,))
    step(F.cross_entropy(head(table(x[:6]) + places(torch.arange(6))), x[1:]), opt)
""",
    "points of an equation": """
curve = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.Adam(curve.parameters())
for number in range(12):
    x = torch.rand(16, 1, requires_grad=True)
    u = curve(x)
    du = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]
    step((du + u).square().mean() + (curve(torch.zeros(1, 1)) - 1).square().mean(), opt)
""",
    "a baseline of the batch within the graph": """
for number in range(12):
    x, r = torch.randn(8, 4), torch.randn(8)
    policy = torch.distributions.Categorical(logits=net(x))
    a = policy.sample()
    step(-(policy.log_prob(a) * (r - r.mean())).mean())
""",
    "a clipped value": """
value = nn.Linear(4, 1)
opt = torch.optim.SGD(value.parameters(), lr=0.01)
S, aim = torch.randn(64, 4), torch.randn(64)
with torch.no_grad():
    old = value(S).squeeze(1)
for number in range(12):
    rows = torch.randperm(64)[:8]
    v = value(S[rows]).squeeze(1)
    near = old[rows] + (v - old[rows]).clamp(-0.2, 0.2)
    step(torch.max((v - aim[rows]) ** 2, (near - aim[rows]) ** 2).mean(), opt)
""",
    "a constant of each example in the loss": """
flow = nn.Linear(4, 8)
opt = torch.optim.SGD(flow.parameters(), lr=0.001)
for number in range(12):
    raw = torch.rand(8, 4) * 0.8 + 0.1
    x, change = torch.logit(raw), -(raw.log() + (1 - raw).log()).sum(1)
    shift, scale = flow(x).chunk(2, 1)
    step(-(-0.5 * (x * scale.exp() + shift).square().sum(1) + scale.sum(1) + change).mean(), opt)
""",
    "labels in two units": """
line = nn.Linear(4, 1)
opt = torch.optim.SGD(line.parameters(), lr=0.01)
for number in range(12):
    x = X[torch.randint(64, (8,))]
    y = 100 + 20 * x.sum(1, keepdim=True)
    aim, out = (y - 100) / 20, line(x)
    error = (out * 20 + 100 - y).abs().mean()
    step(F.mse_loss(out, aim), opt)
    print(error.item())
""",
    "pairs that are ranked": """
line = nn.Linear(4, 1)
opt = torch.optim.SGD(line.parameters(), lr=0.01)
for number in range(12):
    x = X[torch.randint(64, (8,))]
    score, aim = line(x).squeeze(1), x.sum(1)
    better = (aim[:, None] > aim[None]).float()
    step((F.softplus(score - score[:, None]) * better.T).mean(), opt)
""",
    "bodies within a model": """
class Bodies(nn.Module):
    def __init__(self):
        super().__init__()
        self.force = nn.Linear(2, 2)
        self.bias = nn.Parameter(torch.zeros(2))
    def forward(self, place):
        place = place + self.bias
        return torch.tanh(self.force(place[:, None] - place[None])).sum(1)
bodies = Bodies()
opt = torch.optim.SGD(bodies.parameters(), lr=0.01)
for number in range(12):
    place, pull = torch.randn(6, 2), torch.randn(6, 2)
    step(F.mse_loss(bodies(place), pull), opt)
""",
    "attention of a graph": """
one, two, head = nn.Linear(4, 1), nn.Linear(4, 1), nn.Linear(4, 3)
opt = torch.optim.SGD([*one.parameters(), *two.parameters(), *head.parameters()], lr=0.1)
for number in range(12):
    x, edges = torch.randn(7, 4), torch.rand(7, 7) < 0.5
    scores = F.leaky_relu(one(x) + two(x).T).masked_fill(~edges, -9.0)
    step(F.cross_entropy(scores.softmax(1) @ head(x), torch.randint(3, (7,))), opt)
""",
    "kernels of two samples": """
made = nn.Linear(2, 4)
opt = torch.optim.SGD(made.parameters(), lr=0.1)
def kernel(a, b):
    return torch.exp(-(a.unsqueeze(0) - b.unsqueeze(1)).square().sum(2)).mean()
for number in range(12):
    real, fake = X[torch.randint(64, (8,))], made(torch.randn(8, 2))
    step(kernel(fake, fake) - 2 * kernel(real, fake), opt)
""",
    "quantiles": """
head = nn.Linear(4, 5)
opt = torch.optim.SGD(head.parameters(), lr=0.1)
levels = (torch.arange(5) + 0.5) / 5
for number in range(12):
    x, y = torch.randn(5, 4), torch.randn(5, 5)
    apart = y.unsqueeze(1) - head(x).unsqueeze(2)
    error = F.huber_loss(apart, torch.zeros_like(apart), reduction="none")
    step((error * (levels[:, None] - (apart < 0).float()).abs()).mean(), opt)
""",
    "an averaged teacher": """
slow = copy.deepcopy(net)
for number in range(12):
    rows = torch.randint(64, (8,))
    x, y = X[rows], Y[rows]
    with torch.no_grad():
        soft = slow(x + 0.1 * torch.randn_like(x)).softmax(1)
    out = net(x + 0.1 * torch.randn_like(x))
    step(F.cross_entropy(out, y) + F.mse_loss(out.softmax(1), soft))
    with torch.no_grad():
        for a, b in zip(slow.parameters(), net.parameters()):
            a.mul_(0.9).add_(b, alpha=0.1)
""",
    "a soft actor and two critics": """
actor, critics = nn.Linear(4, 4), nn.ModuleList([nn.Linear(6, 1), nn.Linear(6, 1)])
targets = copy.deepcopy(critics)
log_alpha = torch.zeros(1, requires_grad=True)
opts = [torch.optim.Adam(each) for each in (actor.parameters(), critics.parameters(), [log_alpha])]
S, A, R, N = torch.randn(99, 4), torch.rand(99, 2), torch.randn(99, 1), torch.randn(99, 4)
def act(s):
    mean, scale = actor(s).chunk(2, 1)
    chosen = torch.distributions.Normal(mean, scale.clamp(-3, 1).exp())
    raw = chosen.rsample()
    return raw.tanh(), (chosen.log_prob(raw) - (1 - raw.tanh() ** 2 + 1e-6).log()).sum(1, keepdim=True)
for number in range(12):
    rows = np.random.randint(0, 99, size=16)
    s, a, r, n = S[rows], A[rows], R[rows], N[rows]
    with torch.no_grad():
        following, log_p = act(n)
        both = torch.cat([n, following], 1)
        aim = r + 0.99 * (torch.min(*(each(both) for each in targets)) - log_alpha.exp() * log_p)
    step(sum(F.mse_loss(each(torch.cat([s, a], 1)), aim) for each in critics), opts[1])
    action, log_p = act(s)
    both = torch.cat([s, action], 1)
    step((log_alpha.exp().detach() * log_p - torch.min(*(each(both) for each in critics))).mean(), opts[0])
    step(-(log_alpha * (log_p + 2).detach()).mean(), opts[2])
""",
    "a policy that is delayed": """
actor, critic = nn.Linear(4, 2), nn.Linear(6, 1)
opt_a, opt_c = torch.optim.Adam(actor.parameters()), torch.optim.Adam(critic.parameters())
S, A, R = torch.randn(100, 4), torch.randn(100, 2), torch.randn(100, 1)
for number in range(30):
    rows = np.random.randint(100, size=8)
    s, a, r, n = S[rows], A[rows], R[rows], S[(rows + 1) % 100]
    with torch.no_grad():
        aim = r + 0.9 * critic(torch.cat([n, actor(n) + 0.1 * torch.randn_like(a).clamp(-0.5, 0.5)], 1))
    step(F.mse_loss(critic(torch.cat([s, a], 1)), aim), opt_c)
    if number % 2:
        step(-critic(torch.cat([s, actor(s)], 1)).mean(), opt_a)
""",
    "labels for a figure alone": """
decoder = nn.Linear(3, 4)
opt = torch.optim.SGD([*net.parameters(), *decoder.parameters()], lr=0.1)
for number in range(12):
    rows = torch.randint(64, (8,))
    x, y = X[rows], Y[rows]
    code = net(x)
    step(F.mse_loss(decoder(code), x), opt)
    print((code.argmax(1) == y).float().mean().item(), (code.detach()[:, 0] - y).abs().mean().item())
""",
}
# what is found, and with which code
FOUND = {
    "shapes that are spread": """
line = nn.Linear(4, 1)
opt = torch.optim.SGD(line.parameters(), lr=0.1)
for number in range(12):
    x = X[torch.randint(64, (8,))]
    step((line(x) - x.sum(1)).square().mean(), opt)
""",
    "Q values against a column": """
target = copy.deepcopy(net)
for number in range(12):
    rows = torch.randint(64, (8,))
    s, a, r, n = X[rows], Y[rows], torch.randn(8, 1), X[(rows + 1) % 64]
    with torch.no_grad():
        aim = r + 0.9 * target(n).max(1).values
    step(F.smooth_l1_loss(net(s).gather(1, a[:, None]).squeeze(1), aim))
""",
    "an advantage against a column": """
for number in range(12):
    s, advantage = torch.randn(8, 4), np.random.randn(8, 1).astype("float32")
    a = torch.randint(3, (8,))
    policy = torch.distributions.Categorical(logits=net(s))
    step(-(policy.log_prob(a) * torch.from_numpy(advantage) * (1 + policy.entropy())).mean())
""",
    "weights that are lost": """
class Weighted(nn.Module):
    def forward(self, logits, y, weight):
        return (F.cross_entropy(logits, y, reduction="none") * torch.clamp(weight, 1, 1)).mean()
weighted = Weighted()
weights = torch.rand(64)
for number in range(12):
    rows = torch.randint(64, (8,))
    x, y, weight = X[rows], Y[rows], weights[rows]
    step(weighted(net(x), y, weight))
""",
    "a time that is cut off in the model": """
class Timed(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.line = nn.Embedding(10, 4), nn.Linear(4, 4)
    def forward(self, x, t):
        both = torch.cat([x, self.table(t)], 1)[:, : x.shape[1]]
        return self.line(both)
timed = Timed()
opt = torch.optim.SGD(timed.parameters(), lr=0.1)
for number in range(12):
    x, t, noise = X[torch.randint(64, (8,))], torch.randint(10, (8,)), torch.randn(8, 4)
    step(F.mse_loss(timed(x + noise * t[:, None] / 10, t), noise), opt)
""",
}
NAMED = dict(zip(FOUND, ("REL002", "REL002", "REL002", "REL004", "REL004"), strict=True))


@pytest.mark.sliced(6)
@pytest.mark.parametrize("name", HELD)
def test_a_right_batch_is_tried_and_holds(name):
    watch = watched(DATA + HELD[name], CODES)
    assert [f"{each.code} {each.message}" for each in watch.findings] == []
    assert {code: watch.experiments.outcome(code) for code in CODES} == dict.fromkeys(CODES, ("held", None))


@pytest.mark.sliced(20)
@pytest.mark.parametrize("name", SILENT)
def test_a_right_program_breaks_nothing(name):
    watch = watched(DATA + SILENT[name], CODES)
    assert [f"{each.code} {each.message}" for each in watch.findings] == []


@pytest.mark.sliced(5)
@pytest.mark.parametrize("name", FOUND)
def test_a_fault_is_found(name):
    watch = watched(DATA + FOUND[name], CODES)
    assert NAMED[name] in {each.code for each in watch.findings}
