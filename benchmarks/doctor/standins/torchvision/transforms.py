# SPDX-License-Identifier: Apache-2.0
"""Transforms on tensors (a picture becomes one); what is random in torchvision does nothing here."""

import numpy as np
import torch
import torch.nn.functional as F


def _tensor(image):
    if isinstance(image, torch.Tensor):
        return image
    pixels = torch.from_numpy(np.array(image)).float() / 255
    return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1).contiguous()


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image):
        for transform in self.transforms:
            image = transform(image)
        return image


class ToTensor:
    def __init__(self, *args, **options):
        pass

    def __call__(self, image):
        return _tensor(image)


class Resize:
    def __init__(self, size, *_args, **_options):
        self.size = (size, size) if isinstance(size, int) else tuple(size)

    def __call__(self, image):
        return F.interpolate(_tensor(image)[None], size=self.size)[0]


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = (
            torch.as_tensor(each, dtype=torch.float32).reshape(-1, 1, 1) for each in (mean, std)
        )

    def __call__(self, image):
        return (image - self.mean.to(image)) / self.std.to(image)


CenterCrop = RandomCrop = RandomResizedCrop = Resize
RandomHorizontalFlip = RandomRotation = ToPILImage = ColorJitter = Lambda = ToTensor
