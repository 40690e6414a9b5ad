// Every compiled entry: kind of call, counter key, stage, variant, weight format (as in the symbol e0_STAGE_VARIANT_FORMAT).
// Include with E0_ENTRY(kind, key, stage, variant, format, VARIANT, FORMAT) defined.
#define E0_FOUR(kind, STAGE, stage, format, FORMAT)                                       \
    E0_ENTRY(kind, STAGE "/ref/" #FORMAT, stage, ref, format, REF, FORMAT)                \
    E0_ENTRY(kind, STAGE "/mmvq/" #FORMAT, stage, mmvq, format, MMVQ, FORMAT)             \
    E0_ENTRY(kind, STAGE "/mmq/" #FORMAT, stage, mmq, format, MMQ, FORMAT)                \
    E0_ENTRY(kind, STAGE "/w11/" #FORMAT, stage, w11, format, W11, FORMAT)
#define E0_TWO(kind, STAGE, stage, format, FORMAT)                                        \
    E0_ENTRY(kind, STAGE "/ref/" #FORMAT, stage, ref, format, REF, FORMAT)                \
    E0_ENTRY(kind, STAGE "/mmvq/" #FORMAT, stage, mmvq, format, MMVQ, FORMAT)

E0_FOUR(rows, "D", d, q8_0, Q8_0)
E0_TWO(rows, "D", d, q4_0, Q4_0)
E0_FOUR(rows, "U", u, q8_0, Q8_0)
E0_TWO(rows, "U", u, q4_0, Q4_0)
E0_FOUR(a1, "A1", a1, q3_k, Q3_K)
E0_FOUR(a2, "A2", a2, iq4_nl, IQ4_NL)
E0_ENTRY(rows, "linear/mmvq/Q8_0", linear, mmvq, q8_0, MMVQ, Q8_0)
E0_ENTRY(rows, "linear/mmvq/Q4_0", linear, mmvq, q4_0, MMVQ, Q4_0)

#undef E0_FOUR
#undef E0_TWO
