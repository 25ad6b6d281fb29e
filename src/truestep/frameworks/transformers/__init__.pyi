# SPDX-License-Identifier: Apache-2.0
from truestep.frameworks.transformers.exact import ExactResume as ExactResume
