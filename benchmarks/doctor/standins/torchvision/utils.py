# SPDX-License-Identifier: Apache-2.0
"""Pictures are not written."""

import torch


def save_image(*_args, **_options):
    pass


def make_grid(images, *_args, **_options):
    return torch.cat(list(images), 1)
