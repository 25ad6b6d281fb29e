# SPDX-License-Identifier: Apache-2.0
"""A network that goes on with a smaller rate, by set_params(lr=...) and partial_fit()."""

import numpy as np
import torch
from absent import stand_ins
from torch import nn

stand_ins("pkg_resources")
import sys

sys.modules["pkg_resources"].parse_version = lambda text: 0
import collections
import collections.abc

import sklearn.utils

stand_ins("sklearn.metrics.scorer", "sklearn.externals", "sklearn.externals.joblib")
scorer = sys.modules["sklearn.metrics.scorer"]
scorer.check_scoring, scorer._BaseScorer = lambda net, scoring: scoring, type(None)
sklearn.utils.safe_indexing = sklearn.utils._safe_indexing  # its name since scikit-learn 0.24
collections.Sequence = collections.abc.Sequence  # where Python 3.6 had it
from skorch.callbacks import scoring
from skorch.net import NeuralNet

scoring._score = lambda estimator, X_test, y_test, scorer, is_multimetric: scorer(estimator, X_test, y_test)

torch.manual_seed(0)
np.random.seed(0)
images = np.random.randn(800, 12).astype("float32")
labels = images[:, :4].argmax(1).astype("int64")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, X):
        return self.layers(X)


net = NeuralNet(Net, nn.CrossEntropyLoss, max_epochs=3, lr=0.1, batch_size=32, train_split=None)
net.fit(images, labels)
net.set_params(lr=0.01)
net.partial_fit(images, labels)
print("accuracy", (net.predict(images).argmax(1) == labels).mean())
