"""The whole tunnel as one machine without clock or I/O."""
