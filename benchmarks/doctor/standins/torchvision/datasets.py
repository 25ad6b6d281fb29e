# SPDX-License-Identifier: Apache-2.0
"""Data sets of 640 random images with random labels."""

import torch
from torch.utils.data import Dataset

SIZE = 640


class _Images(Dataset):
    shape = (1, 28, 28)
    classes = [str(number) for number in range(10)]

    def __init__(self, root=None, *args, train=True, transform=None, target_transform=None, **_options):
        generator = torch.Generator().manual_seed(0 if train else 1)
        self.data = torch.randint(0, 256, (SIZE, *self.shape), generator=generator, dtype=torch.uint8)
        self.data = self.data.squeeze(1)
        self.targets = torch.randint(0, len(self.classes), (SIZE,), generator=generator)
        self.train_data = self.test_data = self.data
        self.train_labels = self.test_labels = self.targets
        self.transform = transform

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        image = self.data[index].reshape(self.shape).float() / 255
        if self.transform is not None:
            image = self.transform(image)
        return image, int(self.targets[index])


class MNIST(_Images):
    pass


class FashionMNIST(_Images):
    pass


class CIFAR10(_Images):
    """Like the real one, it holds its images as a NumPy array with the channels last."""

    shape = (3, 32, 32)

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.images = self.data
        self.data = self.data.permute(0, 2, 3, 1).contiguous().numpy()
        self.targets = self.targets.tolist()

    def __getitem__(self, index):
        image = self.images[index].float() / 255
        return (image if self.transform is None else self.transform(image)), self.targets[index]


class CIFAR100(CIFAR10):
    classes = [str(number) for number in range(100)]


class ImageFolder(_Images):
    shape = (3, 64, 64)
    classes = ["ants", "bees"]
