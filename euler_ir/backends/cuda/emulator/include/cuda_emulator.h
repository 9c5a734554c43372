// CUDA's language for a C++ compiler: a kernel's source, after this header, runs on the CPU. See docs/cuda_emulator.md.
#pragma once

#include <math.h>
#include <stdio.h>

#include "language.h"
#include "vector_types.h"
#include "warp.h"
#include "atomics.h"
#include "intrinsics.h"
#include "halves.h"
#include "tensor_cores.h"
#include "async_copies.h"
#include "kernels.h"
