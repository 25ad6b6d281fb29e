# SPDX-License-Identifier: Apache-2.0
from truestep.explainer.explainer import Explainer


class ProtobufTooNew(Explainer):
    """A package's generated code is older than the installed protobuf.

    Means: since protobuf 3.20 code that an older protoc generated is refused; TensorBoard and ONNX of that time have such code.

    Recorded:
        TypeError: Descriptors cannot be created directly.
        If this call came from a _pb2.py file, your generated code is out of date and must be regenerated with protoc >= 3.19.0.

    Fix: update the package whose _pb2.py stands in the traceback (pip install -U tensorboard onnx), or pin pip install
    "protobuf<3.21" until it is.
    """

    messages = (
        r"Descriptors cannot (?:not )?be created directly",
        r"cannot import name 'builder' from 'google\.protobuf\.internal'",
    )
    not_in_a_log = ""
