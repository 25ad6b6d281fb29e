# SPDX-License-Identifier: Apache-2.0
"""Each law tried once on a device beside the CPU: what a user with a card runs once (`truestep selfcheck`)."""

from truestep.selfcheck.check_runner import SelfCheckReport, SelfCheckRow, check_device

__all__ = ["SelfCheckReport", "SelfCheckRow", "check_device"]
