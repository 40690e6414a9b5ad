// The engine's own kernels, one table per instruction set.
//
// Everything here belongs to no variant.  Each entry works on one item of a loop that the binding spreads over threads; no result
// depends on how the loop is cut, on the thread, or on the instruction set: the order of operations is stated at each kernel.
#pragma once
#include <cstdint>

namespace e0 {

constexpr int kLanes = 16;       // keys in a tile of the transposed K cache, output rows in a tile of packed dense weights
constexpr int kDenseRows = 24;   // rows of one dense item; a schedule, not part of any result
constexpr int kAttendTokens = 4; // tokens of one attention item, likewise

struct DenseItem {
    const float* const* x;   // `rows` pointers to K inputs
    float* const* y;         // `rows` pointers to M outputs
    int rows;
    const float* packed;     // [ceil(M/16)][K][16], rows beyond M zero
    int64_t K, M;
};

struct AttendItem {
    const float* q;          // [tokens][heads*dim], already rotated
    float* out;              // as q
    const float* k;          // this kv head: [tile][dim][16]
    const float* v;          // this kv head: [key][dim]
    int64_t row_stride;      // heads*dim
    int64_t first_length;    // keys seen by the first token; each further token sees one more
    int tokens;
    int group;               // query heads of this kv head; q and out point at the first of them
    int dim;                 // multiple of 16
    float scale;
    float* scratch;          // attend_scratch() floats
    int64_t score_stride;    // floats between two score rows, at least the keys of the last token, rounded up to whole tiles of 4x16
};

struct Table {
    const char* isa;
    void (*rmsnorm)(const float* x, const float* w, float* y, int64_t n, double eps);
    void (*rope_angles)(int64_t position, const double* inv_freq, int64_t half, float* cos, float* sin);
    void (*rope)(float* x, const float* cos, const float* sin, int64_t heads, int64_t dim);
    void (*add)(float* x, const float* y, int64_t n);
    void (*dense)(const DenseItem& item);
    void (*attend)(const AttendItem& item);
    void (*swiglu)(const float* gate, const float* up, float* h, int64_t n);
    void (*weighted_sum)(const float* y, const float* w, float* out, int64_t k, int64_t n);
    void (*route)(const float* logits, int64_t experts, int64_t k, int32_t* ids, float* weights, float* scratch);
    void (*top_logprobs)(const float* logits, int64_t n, int64_t k, int32_t* ids, float* logprobs);
    void (*sincos)(const double* x, double* s, double* c, int64_t n);      // for the tests of the building blocks
    void (*exp_log)(const double* x, double* e, double* l, int64_t n);
};

const Table* engine_table_baseline();
const Table* engine_table_avx2();
const Table* engine_table_avx512();

}  // namespace e0
