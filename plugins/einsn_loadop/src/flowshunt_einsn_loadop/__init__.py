"""Arithmetic with an operand in memory: a load fused with what uses it, and a read, change and write in one."""
