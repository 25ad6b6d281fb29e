# SPDX-License-Identifier: Apache-2.0
"""Which device, and when it is chosen."""
