// The compiled entries of one instruction set and their table.  Each entry counts its own launch, so a launch count names the code
// that ran and not what a caller asked for.
#include "cpu/stages.h"

namespace e0 {
namespace E0_ISA {

#if E0_MUTANTS
#define E0_WEIGHTS_rows const WeightView* w = faulted(a.w); RowsArgs b = a; b.w = w;
#define E0_WEIGHTS_a1 A1Args b = a; b.gate = faulted(a.gate);
#define E0_WEIGHTS_a2 A2Args b = a; b.down = faulted(a.down);
#else
#define E0_WEIGHTS_rows const RowsArgs& b = a;
#define E0_WEIGHTS_a1 const A1Args& b = a;
#define E0_WEIGHTS_a2 const A2Args& b = a;
#endif
#define E0_ARGS_rows RowsArgs
#define E0_ARGS_a1 A1Args
#define E0_ARGS_a2 A2Args

#define E0_ENTRY(kind, key, stage, variant, format, VARIANT, FORMAT)              \
    static void e0_##stage##_##variant##_##format(const E0_ARGS_##kind& a) {      \
        count_launch(ENTRY_##stage##_##variant##_##format);                       \
        E0_WEIGHTS_##kind                                                         \
        kind##_stage<VARIANT, FORMAT>(b);                                         \
    }
#include "cpu/entries.h"
#undef E0_ENTRY

#define E0_STR_(x) #x
#define E0_STR(x) E0_STR_(x)

static KernelTable make_table() {
    KernelTable t;
    std::memset(&t, 0, sizeof t);
    t.isa = E0_STR(E0_ISA);
#define E0_ENTRY(kind, key, stage, variant, format, VARIANT, FORMAT) \
    t.kind[ENTRY_##stage##_##variant##_##format] = e0_##stage##_##variant##_##format;
#include "cpu/entries.h"
#undef E0_ENTRY
    t.quantise[GGML_REF] = quantise_rows<GGML_REF>;
    t.quantise[Q_MMVQ] = quantise_rows<Q_MMVQ>;
    t.quantise[Q_MMQ] = quantise_rows<Q_MMQ>;
    t.quantise[GGML_X86] = quantise_rows<GGML_X86>;
    t.exp = exp_rows;
    return t;
}

const KernelTable& table() {
    static const KernelTable t = make_table();
    return t;
}

}  // namespace E0_ISA
}  // namespace e0
