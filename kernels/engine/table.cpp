#include "engine/rows.h"

#define E0_PASTE_(a, b) a##b
#define E0_PASTE(a, b) E0_PASTE_(a, b)
#define E0_TEXT_(a) #a
#define E0_TEXT(a) E0_TEXT_(a)

namespace e0 {

const Table* E0_PASTE(engine_table_, E0_ISA)() {
    using namespace E0_ISA;
    static const Table table = {E0_TEXT(E0_ISA), &rmsnorm, &rope_angles, &rope, &add, &dense, &attend, &swiglu,
                                &weighted_sum, &route, &top_logprobs, &sincos, &exp_log};
    return &table;
}

}  // namespace e0
