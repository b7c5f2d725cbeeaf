"""Descriptions of simulated machines: their schema, their files, and what is wrong in one."""
