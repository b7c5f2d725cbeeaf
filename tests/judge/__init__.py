# SPDX-License-Identifier: Apache-2.0
"""A judge of sets of GPUs that shares no code with the scheduler: what NCCL makes of them."""
