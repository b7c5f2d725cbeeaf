# SPDX-License-Identifier: Apache-2.0
"""Real GPUs: what one has answered, and tests for a machine that has some."""
