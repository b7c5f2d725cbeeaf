# SPDX-License-Identifier: Apache-2.0
"""The file for ``gpuscape devices``: what it says, and when it is written."""
