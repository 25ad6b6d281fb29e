# SPDX-License-Identifier: Apache-2.0
"""The explainer: what an exception means, its likeliest cause in this run, and what to do."""
