# SPDX-License-Identifier: Apache-2.0
from truestep.frameworks.transformers import ExactResume as ExactResume
