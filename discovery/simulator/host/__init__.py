"""The simulated machine's host: its /sys, /proc and /dev."""
