# SPDX-License-Identifier: Apache-2.0
"""One of the repository's own discriminators with its update, on made-up transitions of an expert and an agent."""

import os

import torch
import torch.nn.functional as F
import training
from torch import nn

torch.manual_seed(0)
fault = os.environ["FAULTY"][-8:]


def transitions(shift):
    states = torch.randn(257, 4)
    actions = states[:, :2] * shift + 0.1 * torch.randn(257, 2)
    return {
        "states": states,
        "actions": actions,
        "rewards": torch.zeros(257),
        "next_states": torch.randn(257, 4),
        "terminals": torch.zeros(257),
        "weights": torch.ones(257),
    }


def red():
    """RED: the discriminator's rewards, and the value network that learns them."""
    from models import REDDiscriminator

    expert, agent = (training.TransitionDataset(transitions(shift)) for shift in (1.0, -1.0))
    discriminator = REDDiscriminator(4, 2, 32)
    optimizer = torch.optim.RMSprop(discriminator.parameters(), lr=1e-3)
    for _ in range(3):
        training.target_estimation_update(discriminator, expert, optimizer, 32)
    with torch.inference_mode():
        discriminator.set_sigma(expert["states"], expert["actions"])
    value = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.RMSprop(value.parameters(), lr=1e-3)
    for epoch in range(3):
        for batch in torch.utils.data.DataLoader(agent, batch_size=32, shuffle=True):
            with torch.no_grad():
                rewards = discriminator.predict_reward(batch["states"], batch["actions"])
            loss = F.mse_loss(value(batch["states"]).squeeze(1), rewards)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f} reward {rewards.mean().item():.4f}")


def adversarial(algorithm, **options):
    """GAIL and PUGAIL: the update on batches of the replay memories."""
    from models import GAILDiscriminator

    memories = [
        training.ReplayMemory(257, 4, 2, False, transitions=transitions(shift)) for shift in (1.0, -1.0)
    ]
    sizes = {"discount": 0.97} if fault == "4916e6b2" else {}
    discriminator = GAILDiscriminator(4, 2, 32, "tanh", **sizes)
    optimizer = torch.optim.AdamW(discriminator.parameters(), lr=1e-3)
    for step in range(60):
        expert, agent = (memory.sample(32) for memory in memories)
        training.adversarial_imitation_update(
            algorithm, None, discriminator, agent, expert, optimizer, **options
        )
        if step % 20 == 19:
            with torch.no_grad():
                rewards = [
                    discriminator.predict_reward(each["states"], each["actions"]) for each in (expert, agent)
                ]
            print(f"step {step} rewards", [round(each.mean().item(), 4) for each in rewards])


if fault == "3b798dd0":
    red()
elif fault == "4916e6b2":
    adversarial("GAIL", mixup_alpha=0.2, grad_penalty=0.5)
else:
    adversarial("PUGAIL", pos_class_prior=0.7)
