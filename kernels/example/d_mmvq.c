/* Stage D by the mmvq contract, as plainly as it can be written: a start for a kernel of your own.
 *   gcc -O2 -shared -fPIC -ffp-contract=off -o k.so d_mmvq.c -lm
 *   edge0verify kernel --stage D --variant mmvq --library k.so --symbol d_mmvq */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "edge0_kernel.h"

enum { BLOCK = 32, ROW_BYTES = 34, LANES = 32 };        /* Q8_0: a float16 scale and 32 signed bytes */

static float from_half(const void *p) { _Float16 h; memcpy(&h, p, 2); return (float)h; }
static void to_half(void *p, float v) { _Float16 h = (_Float16)v; memcpy(p, &h, 2); }

/* The sum of the lanes by an xor butterfly: partners half the width apart first. */
static float butterfly(float *lane) {
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
    return lane[0];
}

static float dot(const uint8_t *w, const int8_t *a, const uint16_t *scale, int64_t blocks) {
    float lane[LANES] = {0};
    for (int64_t b = 0; b < blocks; ++b) {
        int32_t c = 0;
        for (int i = 0; i < BLOCK; ++i) c += (int8_t)w[b * ROW_BYTES + 2 + i] * a[b * BLOCK + i];
        const float both = from_half(w + b * ROW_BYTES) * from_half(scale + b);
        lane[b % LANES] = fmaf(both, (float)c, lane[b % LANES]);
    }
    return butterfly(lane);
}

/* Thirty-two row values as the mmvq quantiser stores it. */
static void store(const float *x, int8_t *codes, uint16_t *scale, uint16_t *sum) {
    float most = 0, s[LANES];
    for (int i = 0; i < BLOCK; ++i) most = fmaxf(most, fabsf(x[i]));
    const float d = most / 127;
    for (int i = 0; i < BLOCK; ++i) codes[i] = d == 0 ? 0 : (int8_t)roundf(x[i] / d);
    memcpy(s, x, sizeof s);
    to_half(scale, d);
    to_half(sum, butterfly(s));
}

int d_mmvq(const void *weights, const float *x, const int8_t *codes, const void *scales, const void *sums, float *out, int8_t *out_codes,
           void *out_scales, void *out_sums, int64_t m, int64_t n, int64_t k) {
    (void)x, (void)sums;
    const int64_t blocks = k / BLOCK;
    for (int64_t i = 0; i < n; ++i) {
        const uint16_t *scale = (const uint16_t *)scales + i * blocks;
        for (int64_t j = 0; j < m; ++j)
            out[i * m + j] = dot((const uint8_t *)weights + j * blocks * ROW_BYTES, codes + i * k, scale, blocks);
        for (int64_t b = 0; out_codes != NULL && b < m / BLOCK; ++b) {
            const int64_t at = i * (m / BLOCK) + b;
            store(out + at * BLOCK, out_codes + at * BLOCK, (uint16_t *)out_scales + at, (uint16_t *)out_sums + at);
        }
    }
    return 0;
}
