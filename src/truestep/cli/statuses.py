# SPDX-License-Identifier: Apache-2.0
"""The statuses that commands end with, beside 0; a child's own failing status is passed on."""

EXIT_FAILED = 1  # a check failed
EXIT_USAGE = 2
EXIT_MISSING = 3  # the message names what to install
EXIT_UNMET = 4  # a selection can't be met
EXIT_NO_COMMAND = 127  # as shells do
EXIT_INTERRUPTED = 130
