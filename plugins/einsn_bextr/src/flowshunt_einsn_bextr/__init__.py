"""Bit field extracts: a shift and a mask, or two shifts."""
