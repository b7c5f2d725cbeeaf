# SPDX-License-Identifier: Apache-2.0
"""Changes of MIG layouts side by side: ours, nvidia-mig-parted, and a wipe that tries orders."""
