"""TLS for the detection engine: parser, certificates, JA3, keywords, bypass of what is encrypted."""
