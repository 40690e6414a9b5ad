// Around the experts: pairs grouped into tiles of one expert, and the weighted sum over a token's experts.
#pragma once
#include "port/port.h"

namespace e0p {

// plan[tiles, 1 + width]: a tile's expert (-1: unused tile), then its pairs, -1 beyond the last.  One block of 256 threads; thread e
// owns experts e, e + 256, ...; starts is scratch of `experts` ints.  tiles >= pairs/width + experts always suffices.
E0_DEV void group_pairs(const i32* ids, int pairs, int experts, i32* starts, i32* plan, int tiles, int width, u32* counter) {
    count_launch(counter);
    const i64 stride = 1 + width;
    E0_SHARED i32 partial[256];
    E0_FOR_THREADS(t, 256) {
        for (i64 i = t; i < tiles * stride; i += 256) plan[i] = -1;
        i32 mine = 0;
        for (int e = t; e < experts; e += 256) {
            i32 count = 0;
            for (int p = 0; p < pairs; ++p) count += ids[p] == e;
            starts[e] = mine;                                  // tiles before e among this thread's experts
            mine += (count + width - 1) / width;
        }
        partial[t] = mine;
    }
    barrier();
    E0_FOR_THREADS(t, 256) {
        if (t == 0) {
            i32 sum = 0;
            for (int i = 0; i < 256; ++i) {
                const i32 mine = partial[i];
                partial[i] = sum;
                sum += mine;
            }
        }
    }
    barrier_global();
    E0_FOR_THREADS(t, 256) {
        for (int e = t; e < experts; e += 256) {
            const i32 first = partial[t] + starts[e];
            i32 count = 0;
            for (int p = 0; p < pairs; ++p) {
                if (ids[p] == e) {
                    const i64 tile = first + count / width;
                    if (tile < tiles) {
                        plan[tile * stride] = e;
                        plan[tile * stride + 1 + count % width] = p;
                    }
                    ++count;
                }
            }
        }
    }
}

// out[token, width] from y[token*k + slot, width]; thread per output.  order: 0 route order, 1 ascending expert id (then slot),
// 2 float64 in route order with one rounding at the end.
template <int order>
E0_DEV void expert_sum(const float* y, const float* weights, const i32* ids, int k, i64 tokens, int width, float* out, u32* counter) {
    count_launch(counter);
    E0_FOR_THREADS(t, 256) {
        const i64 i = (i64)E0_BLOCK * 256 + t;
        if (i < tokens * width) {
            const i64 pair = i / width * k, column = i % width;
            float acc = 0.0f;
            double wide = 0.0;
            i64 last = -1;
            for (int j = 0; j < k; ++j) {
                int slot = j;
                if (order == 1) {
                    i64 best = ((i64)1 << 62);
                    for (int c = 0; c < k; ++c) {
                        const i64 key = ((i64)ids[pair + c] << 20) + c;
                        if (key > last && key < best) best = key;
                    }
                    last = best;
                    slot = (int)(best & 0xfffff);
                }
                const float w = weights[pair + slot], v = y[(pair + slot) * width + column];
                if (order == 2) wide += (double)w * (double)v;
                else acc = fma32(w, v, acc);
            }
            out[i] = order == 2 ? (float)wide : acc;
        }
    }
}

}  // namespace e0p

E0_KERNEL(256) e0_group_pairs(const e0p::i32* ids, int pairs, int experts, e0p::i32* starts, e0p::i32* plan, int tiles, int width,
                            e0p::u32* counter) {
    e0p::group_pairs(ids, pairs, experts, starts, plan, tiles, width, counter);
}
#define E0_SUM_ARGS                                                                                                         \
    const float *y, const float *weights, const e0p::i32 *ids, int k, e0p::i64 tokens, int width, float *out, e0p::u32 *counter
#define E0_SUM_PASS y, weights, ids, k, tokens, width, out, counter
E0_KERNEL(256) e0_sum_route(E0_SUM_ARGS) { e0p::expert_sum<0>(E0_SUM_PASS); }
E0_KERNEL(256) e0_sum_expert(E0_SUM_ARGS) { e0p::expert_sum<1>(E0_SUM_PASS); }
E0_KERNEL(256) e0_sum_f64(E0_SUM_ARGS) { e0p::expert_sum<2>(E0_SUM_PASS); }
