"""The command group `flowshunt bpf`."""
