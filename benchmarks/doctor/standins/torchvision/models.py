# SPDX-License-Identifier: Apache-2.0
"""Small networks under the names of large ones."""

from torch import nn


class _Small(nn.Module):
    def __init__(self, *_args, num_classes=1000, **_options):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.fc = nn.Linear(8, num_classes)

    def forward(self, images):
        return self.fc(self.features(images))


def resnet18(*args, **options):
    return _Small(*args, **options)


resnet34 = resnet50 = vgg16 = vgg19 = resnet18
