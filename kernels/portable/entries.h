// The portable kernels on the CPU: whole launches, block by block, over `threads` threads.  Same source and same bits as the GPUs.
//
// Pointers are to plain arrays: GGUF blocks for weights, int8 codes [rows, K], scales [rows, K/32] (f16 bits, or f32 for `mmq`
// operands).  counter (may be null) is increased by one inside the kernel of each launch.  A name that no kernel has returns -1,
// everything else 0; shapes are the caller's to check: K % 32 == 0, for q3_k K % 256 == 0.
#pragma once
#include <cstdint>

#define E0_EXPORT __attribute__((visibility("default")))

extern "C" {

// One launch by kernel name, as a driver would do it: args[i] points at the i-th argument, count is how many there are (negative:
// not known).  Returns 0,
// -1 for a name that no kernel has, -2 for a wrong number of arguments.
E0_EXPORT int e0_phase_launch(const char* name, int64_t blocks, void** args, int count, int threads);

// quantiser: "mmvq" (d: uint16_t*, s: uint16_t*) or "mmq" (d: float*, s: ignored).  n values, n % 32 == 0.
E0_EXPORT int e0_phase_quantise(const char* quantiser, const float* x, int64_t n, int8_t* codes, void* d, uint16_t* s, uint32_t* counter, int threads);

// H = swiglu(gate, up) into h (may be null), and its store.
E0_EXPORT int e0_phase_swiglu(const char* quantiser, const float* gate, const float* up, int64_t n, float* h, int8_t* codes, void* d, uint16_t* s,
                    uint32_t* counter, int threads);

// out[N, M] = rows of one contract.  variant: "ref", "mmvq", "mmq", "w11"; format: "q8_0", "q4_0", "q3_k", "iq4_nl".
// ids null: one matrix [M, K] and input row n / div; else input row n / div goes through matrix ids[n] of `experts` consecutive ones.
E0_EXPORT int e0_phase_rows(const char* variant, const char* format, const uint8_t* weights, const int8_t* codes, const void* d, const int32_t* ids,
                  int experts, int div, float* out, int M, int N, int K, uint32_t* counter, int threads);

// out[tokens, width] from y[tokens*k, width]; order: "route", "expert-id", "f64".
E0_EXPORT int e0_phase_sum(const char* order, const float* y, const float* weights, const int32_t* ids, int k, int64_t tokens, int width, float* out,
                 uint32_t* counter, int threads);

E0_EXPORT int e0_phase_exp(const float* x, int64_t n, float* out, uint32_t* counter, int threads);

}
