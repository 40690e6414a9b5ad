// Every portable kernel: the translation unit of the HIP and CUDA builds.
#pragma once
#include "portable/quantise.h"
#include "portable/rows.h"
#include "portable/tiles.h"
#include "portable/experts.h"
