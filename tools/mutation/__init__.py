# SPDX-License-Identifier: Apache-2.0
"""Break the product in many small ways, and count how many of them its tests notice."""
