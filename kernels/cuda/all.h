// CUDA: the portable kernels, and their tuned forms with the same bits.
#pragma once
#include "portable/all.h"
#include "cuda/pack.h"
#include "cuda/tile.h"
#include "cuda/rows.h"
