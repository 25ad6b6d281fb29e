# SPDX-License-Identifier: Apache-2.0
"""Every dtype of the installed torch: what it holds, where it computes, what carries it elsewhere."""

from truestep.machine.dtypes.report import DtypeReport, DtypeRow, dtypes

__all__ = ["DtypeReport", "DtypeRow", "dtypes"]
