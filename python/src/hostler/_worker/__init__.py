"""Functions on nodes: what the caller sends and receives, and what runs there."""
