"""Forward pass, decode, drafter, layer split and dump hooks."""
