/* Kernels as a user would write them, against kernels/edge0_kernel.h: right ones, and ones with the faults that users make. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "edge0_kernel.h"

static float half(const void *p) { _Float16 h; memcpy(&h, p, 2); return (float)h; }
static void put_half(void *p, float v) { _Float16 h = (_Float16)v; memcpy(p, &h, 2); }

/* D mmvq: lane b mod 32 takes block b, then a butterfly.  `past` blocks are left out at the end, `shift` moves the weight scale. */
static float row(const uint8_t *w, const int8_t *a, const uint16_t *da, int64_t blocks, int64_t past, int64_t shift) {
    float lane[32] = {0};
    for (int64_t b = 0; b < blocks - past; ++b) {
        const uint8_t *block = w + b * 34;
        int32_t c = 0;
        for (int i = 0; i < 32; ++i) c += (int8_t)block[2 + i] * a[b * 32 + i];
        const int64_t from = b + shift < blocks ? b + shift : b;
        lane[b % 32] = fmaf(half(w + from * 34) * half(da + b), (float)c, lane[b % 32]);
    }
    for (int width = 16; width; width /= 2)
        for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
    return lane[0];
}

static void store(const float *x, int8_t *codes, uint16_t *d_out, uint16_t *s_out) {
    float most = 0, s[32];
    for (int i = 0; i < 32; ++i) most = fmaxf(most, fabsf(x[i]));
    const float d = most / 127;
    for (int i = 0; i < 32; ++i) codes[i] = d == 0 ? 0 : (int8_t)roundf(x[i] / d);
    memcpy(s, x, sizeof s);
    for (int width = 16; width; width /= 2)
        for (int i = 0; i < width; ++i) s[i] += s[i + width];
    put_half(d_out, d);
    put_half(s_out, s[0]);
}

static int rows(const void *weights, const int8_t *codes, const void *scales, float *out, int8_t *oc, void *od, void *os, int64_t m,
                int64_t n, int64_t k, int64_t past, int64_t shift) {
    for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < m; ++j)
            out[i * m + j] = row((const uint8_t *)weights + j * (k / 32) * 34, codes + i * k, (const uint16_t *)scales + i * (k / 32), k / 32,
                                 past, shift);
        for (int64_t b = 0; oc && b < m / 32; ++b)
            store(out + i * m + b * 32, oc + i * m + b * 32, (uint16_t *)od + i * (m / 32) + b, (uint16_t *)os + i * (m / 32) + b);
    }
    return 0;
}

#define KERNEL(name)                                                                                                          \
    int name(const void *weights, const float *x, const int8_t *codes, const void *scales, const void *sums, float *out,     \
             int8_t *out_codes, void *out_scales, void *out_sums, int64_t m, int64_t n, int64_t k)
#define REST out, out_codes, out_scales, out_sums, m, n, k
#define UNUSED (void)x, (void)sums, (void)codes, (void)scales, (void)weights, (void)out, (void)out_codes, (void)out_scales, (void)out_sums, (void)m, (void)n, (void)k

KERNEL(right) { UNUSED; return rows(weights, codes, scales, REST, 0, 0); }
KERNEL(last_block_dropped) { UNUSED; return rows(weights, codes, scales, REST, k / 32 > 32, 0); }    /* a lane loop that ends too soon */
KERNEL(next_scale) { UNUSED; return rows(weights, codes, scales, REST, 0, 1); }
KERNEL(last_tile_unwritten) { UNUSED; rows(weights, codes, scales, out, out_codes, out_scales, out_sums, m, n - n % 16, k, 0, 0); return 0; }
KERNEL(writes_nothing) { UNUSED; return 0; }
KERNEL(one_past_the_end) { UNUSED; rows(weights, codes, scales, REST, 0, 0); if (n == 17) out[n * m] = 1; return 0; }
KERNEL(writes_its_input) { UNUSED; ((int8_t *)codes)[7] ^= 1; return rows(weights, codes, scales, REST, 0, 0); }
KERNEL(reads_past_the_input) {
    UNUSED;
    rows(weights, codes, scales, REST, 0, 0);
    out[n * m - 1] += 0 * x[n * k];
    return 0;
}
KERNEL(crashes_on_33_blocks) {
    UNUSED;
    if (k == 33 * 32) *(volatile int *)0 = 1;
    return rows(weights, codes, scales, REST, 0, 0);
}
KERNEL(hangs) { UNUSED; for (;;) pause(); }
KERNEL(exits) { UNUSED; write(2, "out of patience\n", 16); _exit(7); }
KERNEL(fails) { UNUSED; return -5; }
KERNEL(refuses_odd_tails) { UNUSED; return k % 64 ? EDGE0_REFUSED : rows(weights, codes, scales, REST, 0, 0); }
KERNEL(refuses_everything) { UNUSED; return EDGE0_REFUSED; }
KERNEL(off_by_an_ulp) {
    UNUSED;
    rows(weights, codes, scales, out, NULL, NULL, NULL, m, n, k, 0, 0);
    for (int64_t i = 0; i < n * m; ++i) out[i] = nextafterf(out[i], INFINITY);
    return 0;
}
KERNEL(stores_truncated) {
    UNUSED;
    rows(weights, codes, scales, REST, 0, 0);
    for (int64_t i = 0; out_codes && i < n * m; ++i) {
        const float d = half((uint16_t *)out_scales + i / 32);
        out_codes[i] = d == 0 ? 0 : (int8_t)(out[i] / d);
    }
    return 0;
}
KERNEL(stores_half_to_even) {
    UNUSED;
    rows(weights, codes, scales, REST, 0, 0);
    for (int64_t i = 0; out_codes && i < n * m; ++i) {
        const float d = half((uint16_t *)out_scales + i / 32);
        if (d == 1) out_codes[i] = (int8_t)rintf(out[i]);
    }
    return 0;
}
/* The second of two parts of an odd number of blocks begins 16 values too late. */
KERNEL(split_in_a_block) {
    UNUSED;
    for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < m; ++j) {
            int8_t less[64 * 32];
            for (int64_t v = 0; v < k; ++v) less[v] = k / 32 % 2 && k > 32 && v / 16 == k / 32 ? 0 : codes[i * k + v];
            out[i * m + j] = row((const uint8_t *)weights + j * (k / 32) * 34, less, (const uint16_t *)scales + i * (k / 32), k / 32, 0, 0);
        }
    return 0;
}
/* Bytes of every dot of four the other way round. */
KERNEL(dots_of_four_reversed) {
    UNUSED;
    for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < m; ++j) {
            int8_t turned[64 * 32];
            for (int64_t v = 0; v < k; ++v) turned[v] = codes[i * k + (v ^ 3)];
            out[i * m + j] = row((const uint8_t *)weights + j * (k / 32) * 34, turned, (const uint16_t *)scales + i * (k / 32), k / 32, 0, 0);
        }
    return 0;
}
/* The row of the token before, from the seventeenth on. */
KERNEL(keeps_the_token_before) {
    UNUSED;
    rows(weights, codes, scales, out, 0, 0, 0, m, n, k, 0, 0);
    for (int64_t i = n - 1; i >= 16; --i) memcpy(out + i * m, out + (i - 1) * m, m * sizeof *out);
    return 0;
}

/* A2 mmvq on IQ4_NL; `by_id` forgets that slots come in route order, `one` uses the first expert for all. */
static const int8_t table[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static int down(const void *w, const int8_t *codes, const void *scales, const int32_t *ids, const float *route, float *y, float *yl, int64_t m,
                int64_t n, int64_t k, int64_t slots, int one) {
    for (int64_t t = 0; t < n; ++t)
        for (int64_t j = 0; j < m; ++j) {
            float sum = 0;
            for (int64_t s = 0; s < slots; ++s) {
                const int64_t pair = t * slots + s, e = ids[t * slots + (one ? 0 : s)];
                float lane[32] = {0};
                for (int64_t b = 0; b < k / 32; ++b) {
                    const uint8_t *block = (const uint8_t *)w + ((e * m + j) * (k / 32) + b) * 18;
                    int32_t c = 0;
                    for (int i = 0; i < 16; ++i) {
                        c += table[block[2 + i] & 15] * codes[pair * k + b * 32 + i];
                        c += table[block[2 + i] >> 4] * codes[pair * k + b * 32 + 16 + i];
                    }
                    lane[b % 32] = fmaf(half(block) * half((const uint16_t *)scales + pair * (k / 32) + b), (float)c, lane[b % 32]);
                }
                for (int width = 16; width; width /= 2)
                    for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
                if (y) y[pair * m + j] = lane[0];
                sum = fmaf(route[pair], lane[0], sum);
            }
            yl[t * m + j] = sum;
        }
    return 0;
}

#define A2(name, one)                                                                                                                \
    int name(const void *w, const int8_t *codes, const void *scales, const void *sums, const int32_t *ids, const float *route, float *y, \
             float *yl, int64_t m, int64_t n, int64_t k, int64_t experts, int64_t slots) {                                            \
        (void)sums, (void)experts;                                                                                                    \
        return down(w, codes, scales, ids, route, y, yl, m, n, k, slots, one);                                                        \
    }
A2(a2_right, 0)
A2(a2_first_expert_only, 1)

/* A1 mmvq on Q3_K. `first_half_scales` takes every 6-bit scale from the first half of its super block. */
static float q3_row(const uint8_t *w, const int8_t *a, const uint16_t *da, int64_t supers, int first_half_scales) {
    float lane[16] = {0};
    for (int64_t s = 0; s < supers; ++s, w += 110)
        for (int h = 0; h < 2; ++h)
            for (int g = 0; g < 8; ++g) {
                float sum = 0;
                for (int p = 0; p < 4; ++p) {
                    const int at = (first_half_scales ? 0 : 8 * h) + 2 * p + g / 4;
                    const int low = at < 8 ? w[96 + at] & 15 : w[96 + at - 8] >> 4, high = w[104 + at % 4] >> (2 * (at / 4)) & 3;
                    int32_t dot = 0;
                    for (int i = 4 * g; i < 4 * g + 4; ++i) {
                        const int code = (w[32 + 32 * h + i] >> (2 * p) & 3) + 4 * (w[i] >> (4 * h + p) & 1) - 4;
                        dot += code * a[s * 256 + 128 * h + 32 * p + i];
                    }
                    sum = fmaf(half(da + s * 8 + 4 * h + p), (float)(dot * ((low | high << 4) - 32)), sum);
                }
                lane[8 * h + g] = fmaf(half(w + 108), sum, lane[8 * h + g]);
            }
    for (int width = 8; width; width /= 2)
        for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
    return lane[0];
}

static int a1(const uint8_t *gate, const uint8_t *up, const int8_t *codes, const uint16_t *scales, const int32_t *ids, float *gate_out,
              float *up_out, int8_t *h_codes, uint16_t *h_scales, uint16_t *h_sums, int64_t m, int64_t n, int64_t k, int64_t slots,
              int first_half_scales, int up_through_silu) {
    const int64_t supers = k / 256;
    for (int64_t pair = 0; pair < n * slots; ++pair) {
        const int64_t t = pair / slots, e = ids[pair];
        float h[4096];
        for (int64_t j = 0; j < m; ++j) {
            const float g = q3_row(gate + (e * m + j) * supers * 110, codes + t * k, scales + t * (k / 32), supers, first_half_scales);
            const float u = q3_row(up + (e * m + j) * supers * 110, codes + t * k, scales + t * (k / 32), supers, first_half_scales);
            gate_out[pair * m + j] = g, up_out[pair * m + j] = u;
            h[j] = up_through_silu ? u / (1 + expf(-u)) * g : g / (1 + expf(-g)) * u;
        }
        for (int64_t b = 0; b < m / 32; ++b)
            store(h + b * 32, h_codes + pair * m + b * 32, h_scales + pair * (m / 32) + b, h_sums + pair * (m / 32) + b);
    }
    return 0;
}

#define A1(name, first_half_scales, up_through_silu)                                                                               \
    int name(const void *gate, const void *up, const float *x, const int8_t *codes, const void *scales, const void *sums,          \
             const int32_t *ids, float *gate_out, float *up_out, int8_t *h_codes, void *h_scales, void *h_sums, int64_t m,         \
             int64_t n, int64_t k, int64_t experts, int64_t slots) {                                                               \
        (void)x, (void)sums, (void)experts;                                                                                       \
        return a1(gate, up, codes, scales, ids, gate_out, up_out, h_codes, h_scales, h_sums, m, n, k, slots, first_half_scales,    \
                  up_through_silu);                                                                                                \
    }
A1(a1_right, 0, 0)
A1(a1_scales_of_the_first_half, 1, 0)
A1(a1_up_through_silu, 0, 1)
