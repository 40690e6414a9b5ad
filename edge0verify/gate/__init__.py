"""Gate records and their validity."""
