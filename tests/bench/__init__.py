# SPDX-License-Identifier: Apache-2.0
"""Measurements side by side in one run, never timed tests: ``python -m tests.bench.report``."""
