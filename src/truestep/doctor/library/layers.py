# SPDX-License-Identifier: Apache-2.0
"""Which of torch's layers have no weights, and which drop at random by an option of theirs: where it stands, and its default.

Which of torchvision's models normalise by batches, in each of their sizes.

`tests/doctor/test_library.py` holds the columns to torch's signatures.
"""

import re
from typing import NamedTuple

# several   how many layers the layer must have for the option to act: its place and name; -: always
# layer                   option at  default  several
_TABLE = """
Transformer               dropout 5  0.1      -
TransformerEncoderLayer   dropout 3  0.1      -
TransformerDecoderLayer   dropout 3  0.1      -
MultiheadAttention        dropout 2  0.0      -
LSTM                      dropout 5  0.0      num_layers 2
GRU                       dropout 5  0.0      num_layers 2
RNN                       dropout 6  0.0      num_layers 2
"""


class LayerWithDropout(NamedTuple):
    """One row."""

    layer: str
    option: str
    at: int
    default: float
    several: tuple[int, str] | None


def _parse_row(layer: str, option: str, at: str, default: str, *several: str) -> LayerWithDropout:
    needed = (int(several[1]), several[0]) if len(several) == 2 else None
    return LayerWithDropout(layer, option, int(at), float(default), needed)


DROPPING_LAYERS = {
    f"torch.nn.{each.layer}": each
    for each in (_parse_row(*line.split()) for line in _TABLE.strip().splitlines())
}


# in whose instances there is nothing to train and nothing to save, whatever their options
_WITHOUT_WEIGHTS = """
AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d AlphaDropout
AvgPool1d AvgPool2d AvgPool3d CELU ChannelShuffle CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d
ConstantPad3d CosineEmbeddingLoss CosineSimilarity CrossMapLRN2d CTCLoss Dropout Dropout1d Dropout2d Dropout3d ELU
FeatureAlphaDropout Flatten Fold FractionalMaxPool2d FractionalMaxPool3d GaussianNLLLoss GELU GLU Hardshrink Hardsigmoid
Hardswish Hardtanh HingeEmbeddingLoss HuberLoss Identity KLDivLoss L1Loss LeakyReLU LocalResponseNorm LogSigmoid
LogSoftmax LPPool1d LPPool2d LPPool3d MarginRankingLoss MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d
Mish MSELoss MultiLabelMarginLoss PairwiseDistance PixelShuffle PixelUnshuffle PoissonNLLLoss ReflectionPad1d
ReflectionPad2d ReflectionPad3d ReLU ReLU6 ReplicationPad1d ReplicationPad2d ReplicationPad3d RReLU SELU Sigmoid SiLU
SmoothL1Loss SoftMarginLoss Softmax Softmax2d Softmin Softplus Softshrink Softsign Tanh Tanhshrink Threshold
TripletMarginLoss TripletMarginWithDistanceLoss Unflatten Unfold Upsample UpsamplingBilinear2d UpsamplingNearest2d
ZeroPad1d ZeroPad2d ZeroPad3d
"""
LAYERS_WITHOUT_WEIGHTS = frozenset(f"torch.nn.{name}" for name in _WITHOUT_WEIGHTS.split())

# torchvision's convolutional models of the last ten years, and those of pixels and of videos that are made of them
BATCH_NORMALISED = re.compile(
    r"^torchvision\.models\.(\w+\.)?(resnet\d|resnext|wide_resnet|densenet|mobilenet_|efficientnet_|googlenet|inception_v3"
    r"|shufflenet_|mnasnet|regnet_|vgg\d+_bn|deeplabv3_|fcn_|lraspp_|r3d_|mc3_|r2plus1d_)\w*$"
)
