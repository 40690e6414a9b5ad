"""Stage and variant registry, kernel bindings, launch counters."""
