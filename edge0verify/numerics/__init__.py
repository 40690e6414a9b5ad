"""Rounding, block formats, quantisers, contracts with their bounds, bias test and claims: numpy only."""
