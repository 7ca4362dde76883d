"""Byte swaps fused with loads and stores, and byte-by-byte recomposition as one access."""
