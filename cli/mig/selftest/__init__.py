# SPDX-License-Identifier: Apache-2.0
"""Parts of ``gpuscape mig selftest``: choice of the GPU, report."""
