// The stages: tokens in tiles of sixteen, pairs grouped by expert, weight tiles of sixteen rows.  Results do not depend on the
// grouping or on the number of threads: each output element is formed by one tile product, whichever item it falls into.
#pragma once
#include "cpu/q3k.h"
#include "cpu/quantise.h"
#include "port/exp.h"

namespace e0 {
namespace E0_ISA {

template <int V, int F> struct KernelOf;
template <int F> struct KernelOf<REF, F> { typedef Ref32 type; };
template <int F> struct KernelOf<MMVQ, F> { typedef Mmvq32 type; };
template <int F> struct KernelOf<MMQ, F> { typedef Mmq32 type; };
template <int F> struct KernelOf<W11, F> { typedef W1132 type; };
template <> struct KernelOf<REF, Q3_K> { typedef RefQ3 type; };
template <> struct KernelOf<MMVQ, Q3_K> { typedef MmvqQ3 type; };
template <> struct KernelOf<MMQ, Q3_K> { typedef MmqQ3 type; };
template <> struct KernelOf<W11, Q3_K> { typedef W11Q3 type; };

constexpr int operand_quantiser(int variant) { return variant == MMQ ? Q_MMQ : Q_MMVQ; }

// tokens t .. count-1 in steps of NT, then of half that
template <class Kernel, int NT, class W>
E0_INLINE void run_steps(const W* w, const typename Kernel::Act* a, int64_t k, const Tree& tree, int t, int count, float (*out)[16]) {
    for (; count - t >= NT; t += NT) Kernel::template run<NT>(w, a, k, tree, t, out);
    if constexpr (NT > 1) run_steps<Kernel, NT / 2>(w, a, k, tree, t, count, out);
}

// Rows of weight tiles [first, last) for `count` packed tokens; dest[t] is the token's whole output row.
template <int V, int F>
static void product(const WeightView& w, int64_t expert, int64_t first, int64_t last, const typename KernelOf<V, F>::type::Act* a,
                    int count, float* const* dest) {
    typedef typename KernelOf<V, F>::type Kernel;
    const Tree tree = Kernel::tree(w.k);
    alignas(64) float out[16][16];
    for (int64_t tile = first; tile < last; ++tile) {
        if (E0_FAULT(SKIP_LAST_ROW_TILE) && tile == w.tiles - 1) continue;
        const auto* wt = Kernel::tile(w, expert, tile);
        if constexpr (V == W11) Kernel::run16(wt, a, w.k, out);
        else run_steps<Kernel, kTokens>(wt, a, w.k, tree, 0, count, out);
#if E0_MUTANTS
        faulted_rows(out, tile, count, w.rows);
#endif
        const int64_t to = E0_FAULT(ROW_TILES_SWAPPED) && 16 * ((tile | 1) + 1) <= w.rows ? tile ^ 1 : tile;
        const int64_t rows = w.rows - 16 * to;
        for (int t = 0; t < count; ++t) {
            float* row = dest[E0_FAULT(TOKENS_ROTATED) ? (t + 1) % count : t] + 16 * to;
            if (rows >= 16) vstore(row, vload(out[t]));
            else std::memcpy(row, out[t], 4 * (size_t)rows);
        }
    }
}

// Tokens `rows` of quantised activations for a product; x: their float32 rows where the caller has them.
template <class Kernel>
static void pack_operands(typename Kernel::Act* acts, Codes a, const float* x, int64_t* rows, int count, int64_t k) {
#if E0_MUTANTS
    a = faulted_operands(a, x, rows, count, k);
#endif
    (void)x;
    Kernel::pack(acts, a, rows, count, k);
}

// A store quantiser on one row.
template <int Q>
static void store_row(const float* x, const Codes& out, int64_t to, int64_t k) {
    quantise_row<Q>(x, out, to, k);
#if E0_MUTANTS
    faulted_store(x, out, to, k);
#endif
}

// Threads worth starting: starting one takes as long as several million products, on a busy machine more.
static inline int useful_threads(int threads, int64_t products) {
    const int64_t most = products / 8000000 + 1;
    return threads < most ? threads : (int)most;
}

template <class Body>
static void each(int64_t items, int threads, Body& body) {
    parallel_items(items, threads, [](void* context, int64_t item) { (*(Body*)context)(item); }, &body);
}

enum { ACTS, ROWS_A, ROWS_B, REQUANTISED, PAIRS, ITEMS };      // scratch slots

// ---- D, U, linear ----------------------------------------------------------------------------------------------------------
template <int V, int F>
static void rows_stage(const RowsArgs& a) {
    typedef typename KernelOf<V, F>::type Kernel;
    const WeightView& w = *a.w;
    const int64_t nb = w.k / 32, groups = (a.n + 15) / 16;
    const int threads = useful_threads(a.threads, a.n * w.rows * w.k);
    // a few tokens: split the weight rows instead; each part quantises for itself, the first one keeps the operands
    const int64_t parts = groups >= 2 * threads || threads == 1 ? 1 : threads;
    auto body = [&](int64_t item) {
        const int64_t first = item / parts * 16, part = item % parts;
        const int count = (int)(a.n - first < 16 ? a.n - first : 16);
        if (E0_FAULT(SKIP_LAST_PARTIAL_TILE) && count < 16) return;
        auto* acts = (typename Kernel::Act*)scratch(ACTS, sizeof(typename Kernel::Act) * nb);
        Codes op = a.op;
        int64_t to = first, rows[16] = {};
        if (part) {
            char* own = (char*)scratch(REQUANTISED, 16 * (w.k + 8 * nb));
            op = {(int8_t*)(own + 16 * 8 * nb), op.d16 ? (uint16_t*)own : nullptr, op.d32 ? (float*)own : nullptr, nullptr};
            to = 0;
        }
        float* dest[16] = {};
        for (int t = 0; t < count; ++t) {
            quantise_row<operand_quantiser(V)>(a.x + (first + t) * w.k, op, to + t, w.k);
            rows[t] = to + t;
            dest[t] = a.out + (first + t) * w.rows;
        }
        pack_operands<Kernel>(acts, op, a.x + first * w.k, rows, count, w.k);
        product<V, F>(w, 0, w.tiles * part / parts, w.tiles * (part + 1) / parts, acts, count, dest);
    };
    each(groups * parts, threads, body);
}

// ---- pairs grouped by expert -----------------------------------------------------------------------------------------------
struct Item { int32_t expert, first, count; };
struct Grouped { const int32_t* pairs; const Item* items; int64_t n; };
static Grouped group_pairs(const int32_t* ids, int64_t pairs, int64_t experts) {
    int32_t* order = (int32_t*)scratch(PAIRS, 4 * (size_t)(pairs + experts + 1));
    int32_t* start = order + pairs;
    std::memset(start, 0, 4 * (size_t)(experts + 1));
    for (int64_t p = 0; p < pairs; ++p) ++start[ids[p] + 1];
    for (int64_t e = 0; e < experts; ++e) start[e + 1] += start[e];
    Item* items = (Item*)scratch(ITEMS, sizeof(Item) * (size_t)(pairs / 16 + experts + 1));
    int64_t n = 0;
    for (int64_t e = 0; e < experts; ++e)
        for (int32_t i = start[e]; i < start[e + 1]; i += 16) {
            const int32_t left = start[e + 1] - i;
            items[n++] = {(int32_t)e, i, left < 16 ? left : 16};
        }
    for (int64_t p = 0; p < pairs; ++p) order[start[ids[p]]++] = (int32_t)p;
    return {order, items, n};
}

// the expert whose weights a group of pairs is multiplied by
static inline int64_t weights_of(int64_t expert, int64_t experts) {
    return E0_FAULT(NEXT_EXPERT) && expert == 1 ? (expert + 1) % experts : expert;
}

// H = f(f(g / f(1 + E(-g))) * u)
static void swiglu(const float* g, const float* u, float* h, int64_t n) {
    const vi minus = viset((int32_t)0x80000000u);
    for (int64_t i = 0; i < n; i += 16) {                      // n is a multiple of 32
        const vf gv = vload(g + i);
        vf e = vexp(vas_f(vxor(vas_i(gv), minus)));
#if E0_MUTANTS
        float rough[16];
        vstore(rough, e);
        for (float& v : rough) v = faulted_exp(v);
        e = vload(rough);
#endif
        vstore(h + i, vmul(vdiv(gv, vadd(vset(1.0f), e)), vload(u + i)));
    }
}

// ---- A1 --------------------------------------------------------------------------------------------------------------------
template <int V, int F>
static void a1_stage(const A1Args& a) {
    typedef typename KernelOf<V, F>::type Kernel;
    const WeightView &gate = *a.gate, &up = *a.up;
    const int64_t k = gate.k, nb = k / 32, ff = gate.rows;
    const int threads = useful_threads(a.threads, 2 * a.n * a.k * ff * k);
    Codes in = a.xlq;
    if (V == MMQ) {                                            // the latent rows, requantised
        char* own = (char*)scratch(REQUANTISED, (size_t)a.n * (k + 4 * nb));
        in = {(int8_t*)(own + a.n * 4 * nb), nullptr, (float*)own, nullptr};
        auto requantise = [&](int64_t group) {
            for (int64_t t = 32 * group; t < 32 * group + 32 && t < a.n; ++t) quantise_row<Q_MMQ>(a.xl + t * k, in, t, k);
        };
        each((a.n + 31) / 32, threads, requantise);
    }
    const Grouped grouped = group_pairs(a.ids, a.n * a.k, gate.experts);
    auto body = [&](int64_t i) {
        const Item item = grouped.items[i];
        if (E0_FAULT(SKIP_LAST_PARTIAL_TILE) && item.count < 16) return;
        auto* acts = (typename Kernel::Act*)scratch(ACTS, sizeof(typename Kernel::Act) * nb);
        float* g = (float*)scratch(ROWS_A, 16 * 4 * (size_t)ff);
        float* u = (float*)scratch(ROWS_B, 16 * 4 * (size_t)ff);
        float *gd[16] = {}, *ud[16] = {};
        int64_t rows[16] = {};
        for (int t = 0; t < item.count; ++t) {
            const int64_t pair = grouped.pairs[item.first + t];
            rows[t] = pair / a.k;
            gd[t] = a.gate_out ? a.gate_out + pair * ff : g + t * ff;
            ud[t] = a.up_out ? a.up_out + pair * ff : u + t * ff;
        }
        pack_operands<Kernel>(acts, in, nullptr, rows, item.count, k);
        product<V, F>(gate, weights_of(item.expert, gate.experts), 0, gate.tiles, acts, item.count, gd);
        product<V, F>(up, weights_of(item.expert, up.experts), 0, up.tiles, acts, item.count, ud);
        for (int t = 0; t < item.count; ++t) {
            if (E0_FAULT(GATE_UP_SWAPPED)) swiglu(ud[t], gd[t], g + t * ff, ff);
            else swiglu(gd[t], ud[t], g + t * ff, ff);
            store_row<operand_quantiser(V)>(g + t * ff, a.h, grouped.pairs[item.first + t], ff);
        }
    };
    each(grouped.n, threads, body);
}

// ---- A2 --------------------------------------------------------------------------------------------------------------------
static inline int64_t route_slot(int64_t slot) { return E0_FAULT(ONE_ROUTE_WEIGHT) ? 0 : slot; }

// the token's weighted sum over its experts
template <int V>
static void expert_sum(const A2Args& a, int64_t token, int64_t m) {
    const int64_t k = E0_FAULT(DROP_SLOT) ? a.k - 1 : a.k;
    const float* weight = a.route_weights + token * a.k;
    const float* y = a.y + token * a.k * m;
    float* yl = a.yl + token * m;
    if (V == REF) {
        for (int64_t j = 0; j < m; ++j) {
            double acc = 0.0;
            for (int64_t s = 0; s < k; ++s) acc += (double)weight[route_slot(s)] * (double)y[s * m + j];
            yl[j] = (float)acc;
        }
        return;
    }
    int32_t order[64];
    for (int32_t s = 0; s < k; ++s) {
        int32_t at = s;
        if (V == MMQ)                                          // ascending expert id, equal ids in route order
            for (; at > 0 && a.ids[token * a.k + order[at - 1]] > a.ids[token * a.k + s]; --at) order[at] = order[at - 1];
        order[at] = s;
    }
    int64_t j = 0;
    for (; j + 16 <= m; j += 16) {
        vf acc = vset(0.0f);
        for (int64_t s = 0; s < k; ++s) acc = vfma(vset(weight[route_slot(order[s])]), vload(y + order[s] * m + j), acc);
        vstore(yl + j, acc);
    }
    for (; j < m; ++j) {
        float acc = 0.0f;
        for (int64_t s = 0; s < k; ++s) acc = fma1(weight[route_slot(order[s])], y[order[s] * m + j], acc);
        yl[j] = acc;
    }
}

template <int V, int F>
static void a2_stage(const A2Args& a) {
    typedef typename KernelOf<V, F>::type Kernel;
    const WeightView& down = *a.down;
    const int64_t k = down.k, nb = k / 32, m = down.rows;
    const int threads = useful_threads(a.threads, a.n * a.k * m * k);
    const Grouped grouped = group_pairs(a.ids, a.n * a.k, down.experts);
    auto body = [&](int64_t i) {
        const Item item = grouped.items[i];
        if (E0_FAULT(SKIP_LAST_PARTIAL_TILE) && item.count < 16) return;
        auto* acts = (typename Kernel::Act*)scratch(ACTS, sizeof(typename Kernel::Act) * nb);
        float* dest[16] = {};
        int64_t rows[16] = {};
        for (int t = 0; t < item.count; ++t) {
            rows[t] = grouped.pairs[item.first + t];
            dest[t] = a.y + rows[t] * m;
        }
        pack_operands<Kernel>(acts, a.h, nullptr, rows, item.count, k);
        product<V, F>(down, weights_of(item.expert, down.experts), 0, down.tiles, acts, item.count, dest);
    };
    each(grouped.n, threads, body);
    auto sums = [&](int64_t group) {
        for (int64_t t = 64 * group; t < 64 * group + 64 && t < a.n; ++t) expert_sum<V>(a, t, m);
    };
    each((a.n + 63) / 64, threads, sums);
}

// ---- quantisers and exp as calls of their own --------------------------------------------------------------------------------
template <int Q>
static void quantise_rows(const QuantiseArgs& a) {
    auto body = [&](int64_t group) {
        for (int64_t t = 64 * group; t < 64 * group + 64 && t < a.n; ++t) store_row<Q>(a.x + t * a.k, a.out, t, a.k);
    };
    each((a.n + 63) / 64, useful_threads(a.threads, 30 * a.n * a.k), body);
}

static void exp_rows(const float* x, float* out, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) vstore(out + i, vexp(vload(x + i)));
    for (; i < n; ++i) out[i] = exp1(x[i]);
}

}  // namespace E0_ISA
}  // namespace e0
