# SPDX-License-Identifier: Apache-2.0
"""A model's graphs: traced once, repeated blocks rolled up, drawn at every depth."""
