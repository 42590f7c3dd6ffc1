"""Notebooks: kernels on nodes, and cells as jobs."""
