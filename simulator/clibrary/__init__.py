# SPDX-License-Identifier: Apache-2.0
"""A real libnvidia-ml.so.1 for programs that are not ours, over a machine that is served."""
