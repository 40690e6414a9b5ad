// The phase form names its own object, so it cannot share the other sources' E0_ISA.
#undef E0_ISA
#include "portable/entries.cpp"
