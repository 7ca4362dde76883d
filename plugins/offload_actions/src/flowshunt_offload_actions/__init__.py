"""Offload actions for flowshunt: what a NIC does with the frames of a bypassed flow."""
