# SPDX-License-Identifier: Apache-2.0
"""Which parameters exist, and which of them are trained."""
