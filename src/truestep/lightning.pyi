# SPDX-License-Identifier: Apache-2.0
from truestep.frameworks.lightning import ExactResume as ExactResume
