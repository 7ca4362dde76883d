"""For tests of this toolchain and of what builds on it: random programs, and runs of them on every runner."""
