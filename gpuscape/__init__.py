# SPDX-License-Identifier: Apache-2.0
# A package of gpuscape.
"""The entry points of gpuscape's processes: the command, the device reader and the MIG worker."""
