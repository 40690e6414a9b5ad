"""Probes of real and simulated devices: memory between two devices, pointers of a split, operations under graph capture."""
