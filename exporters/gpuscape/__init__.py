"""Our own metric families: base units, and sums that are right."""
