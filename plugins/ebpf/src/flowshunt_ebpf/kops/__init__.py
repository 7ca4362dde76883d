"""Extended operations in programs: encoding, lowering, recognition, policy, validation."""
