"""TCP stream reassembly in compiled code."""
