// The float64 oracle: what a product of quantised rows is, and how large its terms are.
//
// It shares no code with the kernels it judges.  Operands arrive decoded: small integers and float scales.  Each 32-block's dot is
// formed exactly in int32, the scales' product exactly in double, and the blocks are summed in double, ascending.  The result
// does not depend on instruction set, thread count or the other rows.
#pragma once
#include <cstdint>
#include <vector>

namespace e0_oracle {

// Weights laid out for one instruction set: tiles of `lanes` rows, the reduction in pairs of values.
struct Packed {
    int lanes = 0;
    int64_t experts = 0, rows = 0, cols = 0, tiles = 0;
    bool has_sub = false;                 // a signed scale per 16 values beside the block scale (Q3_K)
    std::vector<int16_t> q;               // [experts][tiles][cols/2][lanes][2]
    std::vector<int32_t> sub;             // [experts][tiles][cols/16][lanes]
    std::vector<double> scale;            // [experts][tiles][cols/32][lanes]
};

struct PackedFloats {
    int lanes = 0;
    int64_t experts = 0, rows = 0, cols = 0, tiles = 0;
    std::vector<double> w;                // [experts][tiles][cols][lanes]
};

// A run of rows that share an expert: order[first .. first+count).
struct Run {
    int64_t expert, first;
    int32_t count;
};

struct RowsJob {
    const Packed* w;
    const int8_t* codes;                  // [n][cols]
    const float* scales;                  // [n][cols/32]
    const int64_t* order;                 // rows, grouped by expert
    const Run* runs;
    int64_t n_runs;
    int granularity;                      // values per integer dot whose magnitude enters S: 4, 16 or 32
    double *t, *s;                        // [n][rows]
    int threads;
};

struct FloatJob {
    const PackedFloats* w;
    const float* x32;                     // [n][cols], or null
    const double* x64;                    // [n][cols], or null
    const int64_t* order;
    const Run* runs;
    int64_t n_runs;
    double* out;                          // [n][rows]
    int threads;
};

struct Table {
    const char* name;
    Packed (*pack)(const int8_t* q, const float* d, int64_t d_per_row, const int8_t* sub, int64_t experts, int64_t rows, int64_t cols,
                   int threads);
    PackedFloats (*pack_floats)(const float* w, int64_t experts, int64_t rows, int64_t cols, int threads);
    void (*rows)(const RowsJob&);
    void (*float_rows)(const FloatJob&);
};

}  // namespace e0_oracle
