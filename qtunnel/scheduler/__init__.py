"""Which path carries which packets."""
