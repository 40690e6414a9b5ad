"""The types that rooms hand to each other: manifests, evidence, causes, verdicts, and their JSON schemas."""
