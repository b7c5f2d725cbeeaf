# SPDX-License-Identifier: Apache-2.0
"""What a simulated machine is at one moment, and what may happen to it."""
