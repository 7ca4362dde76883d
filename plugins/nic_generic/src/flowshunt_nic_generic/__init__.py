"""Standard NICs for flowshunt: receive-side scaling over several queues, no flow table."""
