# SPDX-License-Identifier: Apache-2.0
"""What no longer works, or soon will not, with the modern line."""
