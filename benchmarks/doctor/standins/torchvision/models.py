# SPDX-License-Identifier: Apache-2.0
"""Small networks under the names of large ones, with as many parts as the scripts cut out of them."""

from torch import nn


class _Residual(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 7, stride=2, padding=3)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = nn.Conv2d(16, 64, 3, padding=1)
        self.layer2 = nn.Conv2d(64, 128, 3, stride=2, padding=1)
        self.layer3 = nn.Conv2d(128, 256, 3, stride=2, padding=1)
        self.layer4 = nn.Conv2d(256, 512, 3, stride=2, padding=1)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, num_classes)

    def forward(self, images):
        out = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        out = self.layer4(self.layer3(self.layer2(self.layer1(out))))
        return self.fc(self.avgpool(out).flatten(1))


class _Plain(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()
        parts = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()]
        for _ in range(17):
            parts += [nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()]
        self.features = nn.Sequential(*parts)
        self.classifier = nn.Linear(16, num_classes)

    def forward(self, images):
        return self.classifier(self.features(images).mean((2, 3)))


def resnet18(*_args, num_classes=1000, **_options):
    return _Residual(num_classes)


def vgg19(*_args, num_classes=1000, **_options):
    return _Plain(num_classes)


resnet34 = resnet50 = resnet18
vgg16 = vgg19
