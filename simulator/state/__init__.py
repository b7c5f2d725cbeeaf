# SPDX-License-Identifier: Apache-2.0
"""State of a simulated machine at one moment, and the changes that may happen to it."""
