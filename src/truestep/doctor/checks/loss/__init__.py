# SPDX-License-Identifier: Apache-2.0
"""What the loss is given, and what it means."""
