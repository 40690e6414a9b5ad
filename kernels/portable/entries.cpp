// CPU build of the portable kernels: see entries.h.
#ifndef E0_ISA
#define E0_ISA phase
#endif
#include "portable/entries.h"

#include "port/pool.h"
#include "portable/all.h"

#include <cstring>
#include <utility>
#include <vector>

using namespace e0p;

namespace {

// Blocks of a launch are independent; a share is several blocks, so that handing them out costs nothing.
template <class Body>
void launch(i64 blocks, int threads, Body&& body) {
    const i64 share = blocks / (8 * (threads > 0 ? threads : 1)) + 1;
    e0::parallel_for((blocks + share - 1) / share, threads, [&](i64 part) {
        const i64 end = (part + 1) * share < blocks ? (part + 1) * share : blocks;
        for (i64 b = part * share; b < end; ++b) {
            cpu_block = (int)b;
            body();
        }
    });
}
i64 over(i64 n, i64 size) { return (n + size - 1) / size; }

struct Name {
    const char* text;
    bool is(const char* other) const { return std::strcmp(text, other) == 0; }
};

typedef void (*RowKernel)(E0_ROW_ARGS);
struct RowEntry { const char *variant, *format; RowKernel run; };
const RowEntry row_kernels[] = {
    {"mmvq", "q8_0", e0_rows_mmvq_q8_0}, {"mmvq", "q4_0", e0_rows_mmvq_q4_0}, {"mmvq", "iq4_nl", e0_rows_mmvq_iq4_nl},
    {"mmvq", "q3_k", e0_rows_mmvq_q3_k}, {"ref", "q8_0", e0_rows_ref_q8_0},   {"ref", "q4_0", e0_rows_ref_q4_0},
    {"ref", "iq4_nl", e0_rows_ref_iq4_nl}, {"ref", "q3_k", e0_rows_ref_q3_k},
};
typedef void (*W11Kernel)(E0_TILE_ARGS(u16));
struct W11Entry { const char* format; W11Kernel run; };
const W11Entry w11_kernels[] = {{"q8_0", e0_rows_w11_q8_0}, {"iq4_nl", e0_rows_w11_iq4_nl}, {"q3_k", e0_rows_w11_q3_k}};
typedef void (*MmqKernel)(E0_TILE_ARGS(float));
struct MmqEntry { const char* format; MmqKernel run; };
const MmqEntry mmq_kernels[] = {{"q8_0", e0_rows_mmq_q8_0}, {"iq4_nl", e0_rows_mmq_iq4_nl}, {"q3_k", e0_rows_mmq_q3_k}};

// Any kernel from an array of pointers to its arguments.
template <class... A, size_t... I>
int call(void (*kernel)(A...), i64 blocks, void** args, int threads, std::index_sequence<I...>) {
    launch(blocks, threads, [&] { kernel(*(A*)args[I]...); });
    return 0;
}
template <class... A>
int call(void (*kernel)(A...), i64 blocks, void** args, int count, int threads) {
    if (count >= 0 && count != (int)sizeof...(A)) return -2;
    return call(kernel, blocks, args, threads, std::index_sequence_for<A...>{});
}

}  // namespace

extern "C" {

int e0_phase_launch(const char* name, int64_t blocks, void** args, int count, int threads) {
#define E0_CALL(kernel) if (std::strcmp(name, #kernel) == 0) return call(kernel, blocks, args, count, threads)
    E0_CALL(e0_quantise_mmvq);
    E0_CALL(e0_quantise_mmq);
    E0_CALL(e0_swiglu_mmvq);
    E0_CALL(e0_swiglu_mmq);
    E0_CALL(e0_exp);
    E0_CALL(e0_group_pairs);
    E0_CALL(e0_sum_route);
    E0_CALL(e0_sum_expert);
    E0_CALL(e0_sum_f64);
    E0_CALL(e0_rows_ref_q8_0);
    E0_CALL(e0_rows_ref_q4_0);
    E0_CALL(e0_rows_ref_iq4_nl);
    E0_CALL(e0_rows_ref_q3_k);
    E0_CALL(e0_rows_mmvq_q8_0);
    E0_CALL(e0_rows_mmvq_q4_0);
    E0_CALL(e0_rows_mmvq_iq4_nl);
    E0_CALL(e0_rows_mmvq_q3_k);
    E0_CALL(e0_rows_mmq_q8_0);
    E0_CALL(e0_rows_mmq_iq4_nl);
    E0_CALL(e0_rows_mmq_q3_k);
    E0_CALL(e0_rows_w11_q8_0);
    E0_CALL(e0_rows_w11_iq4_nl);
    E0_CALL(e0_rows_w11_q3_k);
#undef E0_CALL
    return -1;
}

int e0_phase_quantise(const char* quantiser, const float* x, int64_t n, int8_t* codes, void* d, uint16_t* s, uint32_t* counter, int threads) {
    const Name q{quantiser};
    const i64 blocks = n / 32;
    i8* c = (i8*)codes;
    if (q.is("mmvq"))
        launch(over(blocks, E0_QUANTISE_WAVES), threads, [&] { e0_quantise_mmvq(x, blocks, c, (u16*)d, (u16*)s, counter); });
    else if (q.is("mmq"))
        launch(over(blocks, E0_QUANTISE_WAVES), threads, [&] { e0_quantise_mmq(x, blocks, c, (float*)d, counter); });
    else return -1;
    return 0;
}

int e0_phase_swiglu(const char* quantiser, const float* gate, const float* up, int64_t n, float* h, int8_t* codes, void* d, uint16_t* s,
                    uint32_t* counter, int threads) {
    const Name q{quantiser};
    const i64 blocks = n / 32;
    i8* c = (i8*)codes;
    if (q.is("mmvq"))
        launch(over(blocks, E0_QUANTISE_WAVES), threads, [&] { e0_swiglu_mmvq(gate, up, blocks, h, c, (u16*)d, (u16*)s, counter); });
    else if (q.is("mmq"))
        launch(over(blocks, E0_QUANTISE_WAVES), threads, [&] { e0_swiglu_mmq(gate, up, blocks, h, c, (float*)d, counter); });
    else return -1;
    return 0;
}

int e0_phase_rows(const char* variant, const char* format, const uint8_t* weights, const int8_t* codes, const void* d, const int32_t* ids,
                  int experts, int div, float* out, int M, int N, int K, uint32_t* counter, int threads) {
    const Name v{variant}, f{format};
    const i8* c = (const i8*)codes;
    for (const RowEntry& e : row_kernels) {
        if (!v.is(e.variant) || !f.is(e.format)) continue;
        const int rows = f.is("q3_k") ? 2 * E0_ROW_WAVES : E0_ROW_WAVES;
        const i64 blocks = v.is("ref") ? over((i64)M * N, 256) : over(M, rows) * N;
        launch(blocks, threads, [&] { e.run(weights, c, (const u16*)d, ids, div, out, M, N, K, counter); });
        return 0;
    }
    std::vector<i32> plan;
    i64 tiles = over(N, E0_TN);
    if (ids) {
        tiles = N / E0_TN + experts;
        plan.resize((size_t)tiles * E0_PLAN_STRIDE);
        std::vector<i32> starts((size_t)experts);
        cpu_block = 0;
        e0_group_pairs(ids, N, experts, starts.data(), plan.data(), (int)tiles, E0_TN, nullptr);
    }
    const i32* p = ids ? plan.data() : nullptr;
    const i64 blocks = over(M, E0_TM) * tiles;
    if (v.is("w11"))
        for (const W11Entry& e : w11_kernels)
            if (f.is(e.format)) {
                launch(blocks, threads, [&] { e.run(weights, c, (const u16*)d, p, div, out, M, N, K, counter); });
                return 0;
            }
    if (v.is("mmq"))
        for (const MmqEntry& e : mmq_kernels)
            if (f.is(e.format)) {
                launch(blocks, threads, [&] { e.run(weights, c, (const float*)d, p, div, out, M, N, K, counter); });
                return 0;
            }
    return -1;
}

int e0_phase_sum(const char* order, const float* y, const float* weights, const int32_t* ids, int k, int64_t tokens, int width, float* out,
                 uint32_t* counter, int threads) {
    const Name o{order};
    void (*run)(E0_SUM_ARGS) = o.is("route") ? e0_sum_route : o.is("expert-id") ? e0_sum_expert : o.is("f64") ? e0_sum_f64 : nullptr;
    if (!run) return -1;
    launch(over(tokens * width, 256), threads, [&] { run(y, weights, ids, k, tokens, width, out, counter); });
    return 0;
}

int e0_phase_exp(const float* x, int64_t n, float* out, uint32_t* counter, int threads) {
    launch(over(n, 256), threads, [&] { e0_exp(x, n, out, counter); });
    return 0;
}

}
