# SPDX-License-Identifier: Apache-2.0
"""One exact step: learners, updates, precision, clipping, schedules, data, checkpoints."""
