# SPDX-License-Identifier: Apache-2.0
"""An nvidia-smi for a simulated machine: it resets GPUs and changes their MIG mode."""
