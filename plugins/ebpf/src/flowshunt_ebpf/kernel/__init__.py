"""The live Linux kernel: everything here needs Linux, and most of it privilege."""
