# SPDX-License-Identifier: Apache-2.0
"""Where everything meets: the run's directory, loop, logging, signals and report."""
