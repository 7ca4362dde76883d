"""SSH for the detection engine: banners, HASSH, keywords, bypass of what is encrypted."""
