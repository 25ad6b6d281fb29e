# SPDX-License-Identifier: Apache-2.0
"""Pictures are not written."""


def save_image(*_args, **_options):
    pass


def make_grid(images, *_args, **_options):
    return images[0] if len(images) else images
