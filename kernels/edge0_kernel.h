/* The signatures by which `edge0verify kernel --library k.so --symbol f` calls a kernel.  Plain C; needs nothing else.
 *
 * All matrices are row-major without padding.  Weights are GGUF rows, byte for byte as in the file.  Buffers do not overlap, start at
 * multiples of 64 bytes and lie between guard bytes; inputs must not be written.  Every output holds poison before the call and
 * has to be written whole.  A pointer to an output that the user said the kernel does not write (--writes) is null.
 *
 * Operands (`codes`, `scales`, `sums`) are the f32 input quantised in blocks of 32 by the contract's operand quantiser:
 *   mmvq, w11, ref:  scales f16, sums f16 (the block's sum)        mmq:  scales f32, sums null
 * A kernel may read them or quantise the f32 input itself; it is judged by the contract either way.  float16 values are uint16_t here.
 * Blocks that a kernel stores follow the contract's store quantiser in the same layout.
 *
 * Return 0 when all outputs are written, EDGE0_REFUSED for a shape that the kernel does not do, anything else for an error.  A device
 * kernel's library copies to the device and back, and returns when the outputs are on the host.
 */
#ifndef EDGE0_KERNEL_H
#define EDGE0_KERNEL_H
#include <stdint.h>

#define EDGE0_REFUSED 1

/* Stages D and U: out = W x.  weights [m][k] (D, U: Q8_0, or Q4_0 by --format), x f32 [n][k], out f32 [n][m] (d-xl or u).
 * D also stores its rows: out_codes [n][m], out_scales f16 [n][m/32], out_sums f16 [n][m/32] (d-xlq).  For U they are null. */
typedef int edge0_rows_kernel(const void *weights, const float *x, const int8_t *codes, const void *scales, const void *sums,
                              float *out, int8_t *out_codes, void *out_scales, void *out_sums,
                              int64_t m, int64_t n, int64_t k);

/* Stage A1: per token and chosen expert H = silu(gate x) * (up x), stored in blocks.  gate, up [experts][m][k] Q3_K; x f32 [n][k] (d-xl);
 * ids [n][slots], unique in a row.  Pairs are token-major: pair = token*slots + slot.  gate_out, up_out f32 [n*slots][m] (a-gate, a-up),
 * h_codes [n*slots][m], h_scales and h_sums [n*slots][m/32] (a-h; mmq: h_scales f32, h_sums null). */
typedef int edge0_a1_kernel(const void *gate, const void *up, const float *x, const int8_t *codes, const void *scales,
                            const void *sums, const int32_t *ids, float *gate_out, float *up_out, int8_t *h_codes,
                            void *h_scales, void *h_sums, int64_t m, int64_t n, int64_t k, int64_t experts, int64_t slots);

/* Stage A2: y = down h per pair, yl = sum over a token's slots of route_weight * y.  down [experts][m][k] IQ4_NL; codes [n*slots][k] and
 * their scales are a-h, given; route_weights f32 [n][slots].  y f32 [n*slots][m] (a-y), yl f32 [n][m] (a-yl). */
typedef int edge0_a2_kernel(const void *down, const int8_t *codes, const void *scales, const void *sums, const int32_t *ids,
                            const float *route_weights, float *y, float *yl,
                            int64_t m, int64_t n, int64_t k, int64_t experts, int64_t slots);

#endif
