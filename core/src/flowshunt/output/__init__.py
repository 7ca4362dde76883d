"""Output: EVE JSON lines, tables for the terminal, and JSON figures."""
