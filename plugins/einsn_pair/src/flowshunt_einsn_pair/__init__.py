"""Pairs: two loads or stores side by side as one, on ARM64."""
