# SPDX-License-Identifier: Apache-2.0
"""Processes on the GPUs: their memory, their pods, and the jobs of a batch system."""
