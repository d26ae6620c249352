"""Bucket sets: which sizes to capture, and how to tell the engine."""
