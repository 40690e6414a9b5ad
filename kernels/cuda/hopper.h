// CUDA on sm_90a: everything of all.h, and the tile products by wgmma.
#pragma once
#include "cuda/all.h"
#include "cuda/group.h"
