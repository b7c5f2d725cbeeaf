"""What deploy/monitoring holds: dashboards declared in Python, and rules for the operator."""
