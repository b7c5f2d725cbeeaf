# SPDX-License-Identifier: Apache-2.0
"""``gpuscape compare``: its command, the expositions it reads, and when it reads them."""
