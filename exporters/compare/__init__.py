# SPDX-License-Identifier: Apache-2.0
"""Compare the expositions of two exporters: the verdicts of `gpuscape compare`."""
