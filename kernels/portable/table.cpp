// The phase form as one more object of the CPU module's kernel table: the stages of cpu/types.h made of the portable kernels.
#include "cpu/types.h"
#include "portable/entries.h"

namespace e0 {
namespace {

const char* const variant_name[] = {"ref", "mmvq", "mmq", "w11"};
const char* const format_name[] = {"q8_0", "q4_0", "q3_k", "iq4_nl"};

const char* operand_of(Variant v) { return v == MMQ ? "mmq" : "mmvq"; }
void* scale_of(const Codes& c) { return c.d32 ? (void*)c.d32 : (void*)c.d16; }

void product(Variant v, const WeightView& w, const int8_t* codes, const void* d, const int32_t* ids, int div, float* out, int64_t n, int threads) {
    e0_phase_rows(variant_name[v], format_name[w.format], w.raw, codes, d, ids, (int)w.experts, div, out, (int)w.rows, (int)n, (int)w.k,
                  nullptr, threads);
}

template <int entry, Variant v>
void rows(const RowsArgs& a) {
    count_launch(entry);
    e0_phase_quantise(operand_of(v), a.x, a.n * a.w->k, a.op.codes, scale_of(a.op), a.op.s, nullptr, a.threads);
    product(v, *a.w, a.op.codes, scale_of(a.op), nullptr, 1, a.out, a.n, a.threads);
}

// Scratch slots from 16 on: the vectorised kernels never run in the same call, but may keep their own buffers.
template <int entry, Variant v>
void a1(const A1Args& a) {
    count_launch(entry);
    const int64_t pairs = a.n * a.k, latent = a.gate->k, ff = a.gate->rows;
    const int8_t* codes = a.xlq.codes;
    const void* d = scale_of(a.xlq);
    if (v == MMQ) {
        int8_t* c = (int8_t*)scratch(16, (size_t)(a.n * latent));
        float* s = (float*)scratch(17, (size_t)(a.n * latent / 32) * sizeof(float));
        e0_phase_quantise("mmq", a.xl, a.n * latent, c, s, nullptr, nullptr, a.threads);
        codes = c;
        d = s;
    }
    float* gate = a.gate_out ? a.gate_out : (float*)scratch(18, (size_t)(pairs * ff) * sizeof(float));
    float* up = a.up_out ? a.up_out : (float*)scratch(19, (size_t)(pairs * ff) * sizeof(float));
    product(v, *a.gate, codes, d, a.ids, (int)a.k, gate, pairs, a.threads);
    product(v, *a.up, codes, d, a.ids, (int)a.k, up, pairs, a.threads);
    e0_phase_swiglu(operand_of(v), gate, up, pairs * ff, nullptr, a.h.codes, scale_of(a.h), a.h.s, nullptr, a.threads);
}

template <int entry, Variant v>
void a2(const A2Args& a) {
    count_launch(entry);
    product(v, *a.down, a.h.codes, scale_of(a.h), a.ids, 1, a.y, a.n * a.k, a.threads);
    e0_phase_sum(v == MMQ ? "expert-id" : v == REF ? "f64" : "route", a.y, a.route_weights, a.ids, (int)a.k, a.n, (int)a.down->rows, a.yl,
                 nullptr, a.threads);
}

template <int quantiser>
void quantise(const QuantiseArgs& a) {
    e0_phase_quantise(quantiser == Q_MMQ ? "mmq" : "mmvq", a.x, a.n * a.k, a.out.codes, scale_of(a.out), a.out.s, nullptr, a.threads);
}

void exp(const float* x, float* out, int64_t n) { e0_phase_exp(x, n, out, nullptr, 1); }

KernelTable make() {
    KernelTable t{};
    t.isa = "phase";
#define E0_SET_rows(id, V) t.rows[id] = rows<id, V>;
#define E0_SET_a1(id, V) t.a1[id] = a1<id, V>;
#define E0_SET_a2(id, V) t.a2[id] = a2<id, V>;
#define E0_ENTRY(kind, key, stage, variant, format, VARIANT, FORMAT) E0_SET_##kind(ENTRY_##stage##_##variant##_##format, VARIANT)
#include "cpu/entries.h"
#undef E0_ENTRY
    t.quantise[Q_MMVQ] = quantise<Q_MMVQ>;   // the ggml quantisers are no variant's: no device form of them exists
    t.quantise[Q_MMQ] = quantise<Q_MMQ>;
    t.exp = exp;
    return t;
}

}  // namespace

const KernelTable& phase_table() {
    static const KernelTable table = make();
    return table;
}

}  // namespace e0
