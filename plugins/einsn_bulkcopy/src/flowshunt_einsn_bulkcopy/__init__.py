"""Bulk copies and fills: runs of loads and stores as wide moves."""
