"""The suite tried on itself: planted faults that it must catch and name, legitimate changes that it must let pass."""
