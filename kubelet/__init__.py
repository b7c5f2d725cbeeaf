# SPDX-License-Identifier: Apache-2.0
# A package of gpuscape.
"""What the kubelet shows of devices and pods, and the files by which containers get devices."""
