"""The two text forms of eBPF, both ways."""
