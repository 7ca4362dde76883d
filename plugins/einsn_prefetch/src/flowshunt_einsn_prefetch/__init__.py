"""Prefetches: memory that is read a little later is asked for early."""
