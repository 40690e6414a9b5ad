"""Device runtimes behind one protocol."""
