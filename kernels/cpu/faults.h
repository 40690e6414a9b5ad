// Faults planted in the mutant module, to prove that the checks can fail.  In the product module every hook is nothing.
#pragma once
#include "cpu/types.h"

namespace e0 {

#if E0_MUTANTS
#define E0_FAULTS(X)                                                                                                       \
    X(NEXT_BLOCK_SCALE, "next-block-scale")                 /* each weight block under the scale of the next */            \
    X(SKIP_LAST_PARTIAL_TILE, "skip-last-partial-tile")     /* tokens of the last tile of fewer than 16 stay unwritten */  \
    X(FLIP_HMASK_BIT, "flip-hmask-bit")                     /* Q3_K, gate: one bit in row 5 of each expert */              \
    X(WEIGHT_SCALE_21, "weight-scale-21")                   /* all weight scales times 1 + 2^-21 */                        \
    X(BLOCK_SCALE_18, "block-scale-18")                     /* block 1's weight scales times 1 + 2^-18 */                  \
    X(SCALE_INVERTED, "scale-inverted")                     /* weight scales stored as their reciprocals */                \
    X(SCALE_ROWS_SWAPPED, "scale-rows-swapped")             /* scales of even and odd rows exchanged */                    \
    X(NIBBLES_SWAPPED, "nibbles-swapped")                   /* Q4_0, IQ4_NL: low nibble read for high */                   \
    X(WEIGHT_ROW_SHIFTED, "weight-row-shifted")             /* row 3 of each tile holds the row after it */                \
    X(DROP_BLOCK, "drop-block")                             /* activation block 1 reads as zeros */                        \
    X(DROP_K_HALF, "drop-k-half")                           /* the second half of K is never added */                      \
    X(BLOCKS_SWAPPED, "blocks-swapped")                     /* activation blocks 0 and 1 exchanged */                      \
    X(STALE_TOKEN, "stale-token")                           /* token 3 of each tile reads the row of token 2 */            \
    X(CODE_OFF_BY_ONE, "code-off-by-one")                   /* first activation code of each block one up */               \
    X(ACTIVATION_SCALE_ULP, "activation-scale-ulp")         /* activation scales one float32 ulp up */                     \
    X(ACTIVATION_SCALE_ULP_ONE, "activation-scale-ulp-one-block") /* the same in block 1 alone */                          \
    X(F32_OPERAND_SCALE, "f32-operand-scale")               /* D, U: the scale is not rounded to float16 */                \
    X(ROWS_F16, "rows-f16")                                 /* row values rounded to float16 */                            \
    X(EVERY_7TH_ROW_ULP, "every-7th-row-ulp")               /* weight rows 0, 7, 14 ...: results one ulp up */             \
    X(SKIP_LAST_ROW_TILE, "skip-last-row-tile")             /* the last 16 weight rows stay unwritten */                   \
    X(ROW_TILES_SWAPPED, "row-tiles-swapped")               /* results of neighbouring tiles of 16 rows exchanged */       \
    X(ONE_COLUMN_ZERO, "one-column-zero")                   /* weight row 9 gives 0 */                                     \
    X(F16_ACCUMULATION, "f16-accumulation")                 /* each partial sum rounded to float16 */                      \
    X(BF16_ACCUMULATION, "bf16-accumulation")               /* each partial sum rounded to bfloat16 */                     \
    X(ROUND_TOWARD_ZERO, "round-toward-zero")               /* each partial sum rounded toward zero */                     \
    X(STORE_TRUNCATES, "store-truncates")                   /* stored codes truncated instead of rounded */                \
    X(STORE_NEXT_SCALE, "store-next-scale")                 /* stored scales of the next block */                          \
    X(GATE_UP_SWAPPED, "gate-up-swapped")                   /* A1: SwiGLU with the factors exchanged */                    \
    X(DROP_SLOT, "drop-slot")                               /* A2: a token's last expert is left out of the sum */     \
    X(ONE_ROUTE_WEIGHT, "one-route-weight")                 /* A2: a token's first weight for all its experts */           \
    X(NEXT_EXPERT, "next-expert")                           /* A1, A2: pairs of expert 1 by the weights of the next */     \
    X(LANES_ONCE, "lanes-once")                             /* mmvq of 32-blocks: each lane takes its first block alone */ \
    X(FIRST_SUPER_SCALE, "first-super-scale")               /* Q3_K: all super blocks under the first one's scale */       \
    X(DOT_SATURATES, "dot-saturates")                       /* a block's dot saturates at int16 */                         \
    X(TOKENS_ROTATED, "tokens-rotated")                     /* results of a tile written one token further on */           \
    X(LAST_ROW_NAN, "last-row-nan")                         /* the last weight row gives NaN */                            \
    X(ROUGH_EXP, "rough-exp")                               /* A1: the exponential rounded to bfloat16 */                  \
    X(SUM_OF_CODES, "sum-of-codes")                         /* stored sums are those of the codes, not of the values */
#define E0_FAULT_ID(id, name) id,
enum Fault { NO_FAULT, E0_FAULTS(E0_FAULT_ID) kFaults };
#undef E0_FAULT_ID

extern int planted_fault;
#define E0_FAULT(name) (::e0::planted_fault == ::e0::name)

const WeightView* faulted(const WeightView* w);                                          // weights with a fault in them, or w
Codes faulted_operands(const Codes& in, const float* x, int64_t* rows, int count, int64_t k);   // operands of one tile; may rewrite rows
void faulted_rows(float (*out)[16], int64_t tile, int count, int64_t rows);              // results of one tile of `rows` rows
int32_t faulted_dot(int32_t c);                                                          // a block's dot
float faulted_exp(float e);
void faulted_sum(float* sum, const float* a, const float* b, const float* c);            // sixteen results of fma(a, b, c)
void faulted_store(const float* x, const Codes& out, int64_t row, int64_t k);            // one stored row
#else
#define E0_FAULT(name) false
#endif

}  // namespace e0
