# SPDX-License-Identifier: Apache-2.0
"""The processes that train together: how they meet, share rows, and learn that one of them has failed."""
