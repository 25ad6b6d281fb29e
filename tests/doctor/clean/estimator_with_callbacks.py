# SPDX-License-Identifier: Apache-2.0
import contextlib

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Evaluation:
    """Called after every epoch."""

    def __init__(self, loader, metric):
        self.loader, self.metric, self.history = loader, metric, []

    def __call__(self, estimator):
        with evaluating(estimator.net), torch.no_grad():
            parts = [(estimator.net(x), y) for x, y in self.loader]
        outputs, targets = (torch.cat(each) for each in zip(*parts, strict=True))
        self.history.append(self.metric(outputs, targets).item())


@contextlib.contextmanager
def evaluating(net):
    was_training = net.training
    net.eval()
    try:
        yield net
    finally:
        net.train(was_training)


class Regressor(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.norm = nn.BatchNorm1d(inputs)
        self.hidden = nn.Linear(inputs, 24)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        return self.out(self.drop(self.hidden(self.norm(x)).relu())).squeeze(-1)


class Estimator:
    def __init__(self, net, optimizer=torch.optim.Adam, loss=nn.functional.smooth_l1_loss, **options):
        self.net, self.loss = net, loss
        self.optimizer = optimizer(net.parameters(), **options)

    def partial_fit(self, x, y):
        def closure():
            self.optimizer.zero_grad()
            loss = self.loss(self.net(x), y)
            loss.backward()
            return loss

        return self.optimizer.step(closure).item()

    def fit(self, loader, epochs, callbacks=()):
        self.net.train()
        for _ in range(epochs):
            for x, y in loader:
                self.partial_fit(x, y)
            for callback in callbacks:
                callback(self)
        return self

    def predict(self, x):
        with evaluating(self.net), torch.inference_mode():
            return self.net(x)


torch.manual_seed(0)
x = torch.randn(128, 4)
y = x @ torch.tensor([1.0, -2.0, 0.5, 0.0])
train_loader = DataLoader(TensorDataset(x[:96], y[:96]), batch_size=16, shuffle=True)
test_loader = DataLoader(TensorDataset(x[96:], y[96:]), batch_size=16)
evaluation = Evaluation(test_loader, nn.functional.mse_loss)
for optimizer in (torch.optim.Adam, torch.optim.LBFGS):
    estimator = Estimator(Regressor(4), optimizer, lr=0.01).fit(train_loader, 3, [evaluation])
    print(evaluation.history, (estimator.predict(x[96:]) - y[96:]).abs().mean().item())
