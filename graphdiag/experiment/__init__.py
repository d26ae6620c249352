"""Eager, compiled and graph replay on one engine, measured with the full cost in."""
