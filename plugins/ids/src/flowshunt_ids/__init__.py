"""The detection engine: Suricata rules over packets and reassembled TCP streams."""
