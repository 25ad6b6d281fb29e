# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Features(nn.Module):
    """Fixed features of which images are made alike."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)])
        self.norm = nn.BatchNorm2d(8)
        self.requires_grad_(False).eval()

    def forward(self, image):
        found = []
        for layer in self.layers:
            image = self.norm(layer(image)).relu()
            found.append(image)
        return found


def gram(features):
    flat = features.flatten(2)
    return flat @ flat.transpose(1, 2) / flat.size(2)


features = Features()
style = [gram(each) for each in features(torch.rand(1, 3, 16, 16))]
content = features(torch.rand(1, 3, 16, 16))[-1]
image = torch.rand(1, 3, 16, 16, requires_grad=True)
optimizer = torch.optim.LBFGS([image], lr=0.5, max_iter=4)
for _round in range(8):

    def closure():
        with torch.no_grad():
            image.clamp_(0, 1)
        optimizer.zero_grad()
        found = features(image)
        alike = sum(F.mse_loss(gram(mine), goal) for mine, goal in zip(found, style, strict=True))
        loss = 100 * alike + F.mse_loss(found[-1], content)
        loss.backward()
        return loss

    optimizer.step(closure)

upscaler = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.PixelShuffle(2))
optimizer = torch.optim.Adam(upscaler.parameters(), lr=1e-3)
for _step in range(10):
    large = torch.rand(4, 3, 16, 16)
    small = F.avg_pool2d(large, 2)
    made = upscaler(small)
    pairs = zip(features(made), features(large), strict=True)
    loss = F.l1_loss(made, large) + 0.1 * sum(F.mse_loss(mine, goal) for mine, goal in pairs)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
