# SPDX-License-Identifier: Apache-2.0
# A package of gpuscape.
"""Where each process of gpuscape starts: the command, and the device reader."""
