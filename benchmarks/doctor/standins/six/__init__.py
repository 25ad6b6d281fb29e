# SPDX-License-Identifier: Apache-2.0
"""What is left to stand in for: an empty package."""
