"""The types that travel between rooms: manifest, evidence, causes, verdict, and their JSON schemas."""
