# SPDX-License-Identifier: Apache-2.0
"""Learning-rate schedules."""
