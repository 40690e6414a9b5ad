// HIP: the portable kernels as one code object.
#include "portable/all.h"
