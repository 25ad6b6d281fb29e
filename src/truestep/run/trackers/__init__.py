# SPDX-License-Identifier: Apache-2.0
"""Where a run's values go besides `metrics.jsonl`: CSV, TensorBoard, or anything else that has `ts.Tracker`'s methods."""
