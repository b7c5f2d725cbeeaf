# SPDX-License-Identifier: Apache-2.0
# A package of gpuscape.
"""NVML's C entry points over a machine in a file, put under pynvml in place of the library."""
