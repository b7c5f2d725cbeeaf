# SPDX-License-Identifier: Apache-2.0
"""What ``gpuscape mig selftest`` looks at first, compares, and reports."""
