# SPDX-License-Identifier: Apache-2.0
"""One process of train.py on a made-up cart, on-policy, with the defaults of main.py otherwise."""

import builtins
import os
import types

import torch
from absent import stand_ins
from torch import nn
from torch.nn import init

stand_ins("plotly", "plotly.graph_objs")  # only plots are made with it

# what the torch of then did: sums have a dimension, one draw is the default, gradients are kept and filled with zeros
draw, backward, zero_grad = torch.Tensor.multinomial, torch.Tensor.backward, nn.Module.zero_grad
torch.Tensor.multinomial = lambda self, num_samples=1: draw(self, num_samples)
torch.Tensor.backward = lambda self, *values, retain_variables=None, **options: backward(
    self, *values, **(options if retain_variables is None else {**options, "retain_graph": retain_variables})
)
nn.Module.zero_grad = lambda self: zero_grad(self, set_to_none=False)
init.orthogonal = lambda tensor: init.orthogonal_(tensor.data)
init.constant = lambda tensor, value: init.constant_(tensor.data, value)
nn.utils.clip_grad_norm = nn.utils.clip_grad_norm_

import gym
import train
from model import ActorCritic
from utils import Counter

train.sum = lambda parts: builtins.sum(parts).view(1)
args = types.SimpleNamespace(
    seed=123,
    num_processes=1,
    T_max=2000,
    t_max=20,
    max_episode_length=20,
    hidden_size=32,
    on_policy=True,
    env="cart",
)
args.memory_capacity, args.replay_start, args.replay_ratio, args.batch_size = 10000, 10**6, 0, 16
args.discount, args.trace_decay, args.trace_max, args.reward_clip = 0.99, 1, 10, False
args.trust_region = os.environ["FAULTY"].endswith(
    ("aa6eb99e", "1cce3caf")
)  # an option, in which these faults are
args.trust_region_decay, args.trust_region_threshold = 0.99, 1
args.lr, args.lr_decay, args.entropy_weight, args.no_time_normalisation = 1e-3, False, 0.001, False
args.max_gradient_norm = 10

torch.manual_seed(args.seed)
env = gym.make(args.env)
shared_model = ActorCritic(env.observation_space, env.action_space, args.hidden_size)
shared_average_model = ActorCritic(env.observation_space, env.action_space, args.hidden_size)
shared_average_model.load_state_dict(shared_model.state_dict())
for parameter in shared_average_model.parameters():
    parameter.requires_grad = False
optimiser = torch.optim.RMSprop(shared_model.parameters(), lr=args.lr, alpha=0.99)
train.train(1, args, Counter(), shared_model, shared_average_model, optimiser)
