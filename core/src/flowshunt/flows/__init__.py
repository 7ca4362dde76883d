"""Flows: keys, records, the flow table, life cycle and counters."""
