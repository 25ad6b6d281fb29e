# SPDX-License-Identifier: Apache-2.0
"""acer.py's own functions on a made-up cart, its loop of rollouts with training from the 50th on."""

import acer
import numpy as np
import torch
from torch.distributions import Categorical

np.random.seed(0)
torch.manual_seed(0)
env = acer.gym.make("CartPole-v1")
memory = acer.ReplayBuffer()
model = acer.ActorCritic()
optimizer = torch.optim.Adam(model.parameters(), lr=acer.learning_rate)

for episode in range(80):
    s, done, score = env.reset(), False, 0.0
    while not done:
        sequence = []
        for _ in range(acer.rollout_len):
            prob = model.pi(torch.from_numpy(s).float())
            a = Categorical(prob).sample().item()
            s_prime, r, done, _info = env.step(a)
            sequence.append((s, a, r / 100.0, prob.detach().numpy(), done))
            score += r
            s = s_prime
            if done:
                break
        memory.put(sequence)
        if memory.size() > 50:
            acer.train(model, optimizer, memory, on_policy=True)
            acer.train(model, optimizer, memory)
    if episode % 20 == 0:
        print(f"episode {episode} score {score:.1f}")
