# SPDX-License-Identifier: Apache-2.0
"""What a schedule does to an optimizer's settings, found by stepping it, and drawn."""
