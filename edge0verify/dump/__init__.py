"""HDF5 store, capture levels, readers of foreign dumps."""
