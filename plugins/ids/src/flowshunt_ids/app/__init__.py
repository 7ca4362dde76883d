"""Application layers: protocols, their parsers and transactions, the buffers that rules look at."""
