# SPDX-License-Identifier: Apache-2.0
"""One folder a topic, one file a mistake; found by scanning, registered nowhere."""
