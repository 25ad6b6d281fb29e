# SPDX-License-Identifier: Apache-2.0
from truestep.frameworks import accelerate as accelerate
from truestep.frameworks import lightning as lightning
from truestep.frameworks import transformers as transformers
