# SPDX-License-Identifier: Apache-2.0
"""What changing MIG takes of NVML: the calls that change, and who is in the way."""
