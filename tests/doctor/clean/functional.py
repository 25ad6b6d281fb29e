# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
parameters = {name: each.detach().clone() for name, each in net.named_parameters()}
x, y = torch.randn(64, 4), torch.arange(64) % 3


def loss_of(parameters, x, y):
    return F.cross_entropy(functional_call(net, parameters, (x,)), y)


for _step in range(20):
    gradients, value = grad_and_value(loss_of)(parameters, x, y)
    parameters = {name: each - 0.1 * gradients[name] for name, each in parameters.items()}

per_example = vmap(grad_and_value(lambda p, x, y: loss_of(p, x[None], y[None])), in_dims=(None, 0, 0))
per_example(parameters, x, y)
stacked, buffers = stack_module_state([nn.Linear(4, 3) for _ in range(3)])
base = nn.Linear(4, 3)
vmap(lambda p, b, x: functional_call(base, (p, b), (x,)), in_dims=(0, 0, None))(stacked, buffers, x)
