# SPDX-License-Identifier: Apache-2.0
"""What every room stands on: errors and results."""
