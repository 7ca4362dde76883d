"""MIME messages: parts, their headers, encodings and files."""
