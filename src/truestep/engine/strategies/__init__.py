# SPDX-License-Identifier: Apache-2.0
"""How an update is spread over devices and processes."""
