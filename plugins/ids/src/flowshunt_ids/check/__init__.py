"""What a rule writer wants to know of rules: `flowshunt rules check`."""
