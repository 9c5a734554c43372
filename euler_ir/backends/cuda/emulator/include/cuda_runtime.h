// What a kernel's file includes of CUDA: here it is all there before the file begins.
#pragma once
