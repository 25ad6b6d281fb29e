# SPDX-License-Identifier: Apache-2.0
"""QuantileRegressionDQNAgent for 30 episodes of a made-up cart, with the options of its example."""

import logging

import gym
import numpy as np
import torch
from absent import bare_packages, stand_ins

bare_packages("deep_rl", "deep_rl.agent", "deep_rl.component")
stand_ins(
    "tensorboardX",
    "cv2",
    "gym.spaces",
    "gym.core",
    "deep_rl.component.bench",
    "deep_rl.agent.BaseAgent.wrapper",
)
from deep_rl.agent.QuantileRegressionDQN_agent import QuantileRegressionDQNAgent
from deep_rl.component.policy import GreedyPolicy
from deep_rl.component.replay import Replay
from deep_rl.network import FCBody, QuantileNet
from deep_rl.utils.config import Config


class Task:
    state_dim, action_dim, name = 4, 2, "cart"

    def __init__(self):
        self.env = gym.make("CartPole-v0")
        self.reset, self.step = self.env.reset, self.env.step


np.random.seed(0)
torch.manual_seed(0)
config = Config()
config.task_fn = Task
config.evaluation_env = None
config.optimizer_fn = lambda params: torch.optim.RMSprop(params, 0.001)
config.network_fn = lambda state_dim, action_dim: QuantileNet(
    action_dim, config.num_quantiles, FCBody(state_dim)
)
config.policy_fn = lambda: GreedyPolicy(epsilon=0.1, final_step=10000, min_epsilon=0.1)
config.replay_fn = lambda: Replay(memory_size=10000, batch_size=10)
config.target_network_update_freq = 200
config.exploration_steps = 100
config.logger = logging.getLogger("quantiles")
config.num_quantiles = 20
agent = QuantileRegressionDQNAgent(config)
for episode in range(30):
    reward, steps = agent.episode()
    print(f"episode {episode} reward {reward} steps {steps}")
