# SPDX-License-Identifier: Apache-2.0
"""What runs a graph for the engine, past those calls of torch's that scripts make: here listeners can stand around it.

It is looked up in this module at each call, so that it costs nothing where nobody listens.
"""

from collections.abc import Callable
from typing import Any

from torch.autograd import Variable
from torch.autograd.graph import _engine_run_backward

in_this_thread: Callable[..., Any] = Variable._execution_engine.run_backward
"""Without an accelerator a graph runs in this thread, so no context is copied for another one."""
on_devices: Callable[..., Any] = _engine_run_backward
