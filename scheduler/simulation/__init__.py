"""A workload played on a fleet, with schedulers to compare."""
