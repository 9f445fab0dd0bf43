"""Runs foreign programs without and with the library, and compares what they do."""
