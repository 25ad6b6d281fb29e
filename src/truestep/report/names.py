# SPDX-License-Identifier: Apache-2.0
"""The names of a run's files, for whoever reads them."""

CONFIG = "config.json"
METRICS = "metrics.jsonl"
REPORT = "report.html"
COMPARISON = "comparison.html"
