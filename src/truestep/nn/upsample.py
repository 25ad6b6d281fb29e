# SPDX-License-Identifier: Apache-2.0
"""Up-sampling by interpolation or by a learned transposed convolution, behind one name."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from truestep.core.errors import OptionError, check_choice, check_number

_TRANSPOSED: dict[int, Callable[..., Tensor]]
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


class Upsample(nn.Module):
    """Make the last one, two or three dimensions of (batch, channels, ...) `scale` times as large, the same in every mode.

    Modes that interpolate take inputs of each rank: "nearest"; "linear" (bilinear, trilinear); "cubic" (torch has it for two
    dimensions only). "transposed" learns: a transposed convolution that starts as exactly "linear", its kernel twice the stride, so
    that every output is reached by equally many weights; borders are repeated outwards, as interpolation does.

    Pixels are squares with a centre, not points on a grid (`align_corners=False` in torch's words): so the size is a
    multiple, the shift is none, and the result does not depend on the image's size.

    Args:
        scale: a whole number, or one for each spatial dimension.
        mode: "nearest", "linear", "cubic" or "transposed".
        channels: of the input and the output; "transposed" needs it, any other mode checks it.
        num_dims: how many spatial dimensions; "transposed" needs it where `scale` is one number.

    Sources: Odena, Dumoulin & Olah, "Deconvolution and Checkerboard Artifacts" (Distill, 2016); `nn.Upsample`.
    """

    def __init__(
        self,
        scale: int | tuple[int, ...],
        *,
        mode: str = "linear",
        channels: int | None = None,
        num_dims: int | None = None,
    ) -> None:
        super().__init__()
        check_choice("ts.nn.Upsample", "mode", mode, (*_INTERPOLATIONS, "transposed"))
        scales = scale if isinstance(scale, tuple) else (scale,)
        if not all(type(one) is int and one >= 1 for one in scales) or not 1 <= len(scales) <= 3:
            raise OptionError(
                f"scale={scale!r}: give a whole number from 1 on, or a tuple of one to three. For other sizes write "
                "F.interpolate(x, size=100), which has a size to keep and no multiple."
            )
        if channels is not None:
            check_number("ts.nn.Upsample", "channels", channels, example=64, least=1)
        check_choice("ts.nn.Upsample", "num_dims", num_dims, (None, 1, 2, 3))
        if isinstance(scale, tuple) and num_dims not in (None, len(scale)):
            raise OptionError(
                f"scale={scale} has {len(scale)} dimensions and num_dims={num_dims}: leave it out."
            )
        self.mode, self.channels = mode, channels
        self.num_dims = len(scales) if isinstance(scale, tuple) else num_dims
        self.scales = scales if isinstance(scale, tuple) else scales * (num_dims or 1)
        if mode == "transposed":
            self._make_weights()

    def forward(self, images: Tensor) -> Tensor:
        """Return `images` of shape (batch, channels, *sizes) with each size multiplied by its scale."""
        self._check_images(images)
        if self.mode == "transposed":
            return self._transposed_convolution(images)
        scales = self.scales if self.num_dims else self.scales * (images.ndim - 2)
        return _INTERPOLATIONS[self.mode](images, scales)

    def extra_repr(self) -> str:
        """Return what `print(model)` shows."""
        scale = self.scales[0] if len(set(self.scales)) == 1 else self.scales
        return f"scale={scale}, mode={self.mode!r}" + (f", channels={self.channels}" if self.channels else "")

    def _make_weights(self) -> None:
        if self.channels is None or self.num_dims is None:
            raise OptionError(
                f'mode="transposed" has weights and needs channels and 1 to 3 dimensions; got channels={self.channels}, '
                f"num_dims={self.num_dims}. Write Upsample(2, mode='transposed', channels=64, num_dims=2)."
            )
        weight = torch.zeros(self.channels, self.channels, *(2 * scale for scale in self.scales))
        weight[range(self.channels), range(self.channels)] = _linear_kernel(self.scales)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(self.channels))

    def _transposed_convolution(self, images: Tensor) -> Tensor:
        for dimension in range(2, images.ndim):  # F.pad's backward has no deterministic form on a GPU
            ends = [images.narrow(dimension, at, 1) for at in (0, images.shape[dimension] - 1)]
            images = torch.cat((ends[0], images, ends[1]), dimension)
        padding = tuple(scale + scale // 2 for scale in self.scales)
        images = _TRANSPOSED[images.ndim - 2](images, self.weight, self.bias, self.scales, padding)
        for dimension, scale in enumerate(self.scales, start=2):
            idle = scale % 2  # the kernel of an odd scale has a first tap that interpolation does not use
            images = images.narrow(dimension, idle, images.shape[dimension] - idle)
        return images

    def _check_images(self, images: Tensor) -> None:
        if not isinstance(images, Tensor) or not (images.is_floating_point() or images.dtype == torch.uint8):
            what = images.dtype if isinstance(images, Tensor) else type(images).__name__
            raise ValueError(f"Upsample got {what}; it takes floating-point images: images.float() / 255.")
        rank = images.ndim - 2
        if rank not in _TRANSPOSED or self.num_dims not in (None, rank) or min(images.shape[2:]) < 1:
            wanted = "one to three" if self.num_dims is None else str(self.num_dims)
            raise ValueError(
                f"Upsample got shape {tuple(images.shape)}, expected (batch, channels, ...) with {wanted} spatial sizes of at "
                "least 1. For a single image write images[None]."
            )
        if self.channels not in (None, images.shape[1]):
            raise ValueError(
                f"Upsample was made for {self.channels} channels and got {images.shape[1]} (shape {tuple(images.shape)}). "
                "Channels are the second dimension."
            )


def _linear_kernel(scales: tuple[int, ...]) -> Tensor:
    """Return the weights with which a stride of `scales` interpolates linearly, 2·scale taps along each dimension."""
    kernel = torch.ones(())
    for scale in scales:
        centre = scale - 0.5 * (scale % 2 == 0)
        taps = 1 - (torch.arange(2 * scale) - centre).abs() / scale
        kernel = kernel[..., None] * taps
    return kernel


def _cubic_interpolation(images: Tensor, scales: tuple[int, ...]) -> Tensor:
    """Interpolate dimension by dimension, each as the width of pictures of height one."""
    for dimension, scale in enumerate(scales, start=2):
        moved = images.movedim(dimension, -1)
        flat = moved.reshape(len(images), math.prod(moved.shape[1:-1]), 1, moved.shape[-1])
        wide = F.interpolate(flat, scale_factor=(1, scale), mode="bicubic", align_corners=False)
        images = wide.reshape(*moved.shape[:-1], wide.shape[-1]).movedim(-1, dimension)
    return images


_INTERPOLATIONS: dict[str, Callable[[Tensor, tuple[int, ...]], Tensor]] = {
    # torch's "nearest" would round i / scale down, and 49 · (1 / 49) is less than 1
    "nearest": lambda images, scales: F.interpolate(images, scale_factor=scales, mode="nearest-exact"),
    "linear": lambda images, scales: F.interpolate(
        images, scale_factor=scales, mode=_LINEAR[len(scales)], align_corners=False
    ),
    "cubic": _cubic_interpolation,
}
