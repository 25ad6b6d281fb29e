# SPDX-License-Identifier: Apache-2.0
"""The region proposal network on made-up features of 6 by 6, its scores trained on made-up labels of anchors."""

import torch
import torch.nn.functional as F
from absent import bare_packages, stand_ins
from torch.utils.data import DataLoader, TensorDataset

bare_packages("model", "model.utils")
stand_ins("cupy", "model.utils.nms")
import sys

import numpy as np

sys.modules["model.utils.nms"].non_maximum_suppression = lambda boxes, thresh, **_options: np.arange(
    min(len(boxes), 20)
)
sys.modules["cupy"].ascontiguousarray, sys.modules["cupy"].asnumpy = np.ascontiguousarray, np.asarray
if not hasattr(np, "int"):
    np.int = int  # as numpy 1 had it
from model.region_proposal_network import RegionProposalNetwork

torch.manual_seed(0)
features = torch.randn(160, 8, 6, 6)
labels = (features[:, :1].permute(0, 2, 3, 1) > 0).long().expand(160, 6, 6, 9).reshape(160, -1)
net = RegionProposalNetwork(in_channels=8, mid_channels=16)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

for epoch in range(2):
    for feature, label in DataLoader(TensorDataset(features, labels), batch_size=1, shuffle=True):
        locations, scores, rois, roi_indices, anchor = net(feature, (96, 96))
        loss = F.cross_entropy(scores[0], label[0]) + 0.1 * locations.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f} proposals {len(rois)}")
