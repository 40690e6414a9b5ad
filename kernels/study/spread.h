// How far rounding alone moves a row value, and the sums that the bias test is made of, over many rows at once.
//
// This is edge0verify/numerics/spread.py and bias.py at the speed of a whole prompt: each operation that rounds adds
// ulp(result)^2/12 times the square of what multiplies it further on, all in double, in the variant's own order.
// Lanes are weight rows and totals are taken over them in ascending order, so instruction sets and threads give the same bits.
#pragma once
#include <cstdint>
#include <vector>

#include "study/rows.h"

namespace e0_oracle {

enum class Order { F64, LANES, PRODUCT_FIRST, DOT_FIRST, Q3K_LANES, Q3K_HALVES };

struct Place {
    int64_t row, column;
    double z;
};

// Sums over the values of one run of rows; `column` and `block` hold one number per column and per term.
struct BiasSums {
    double n = 0, z = 0, zz = 0, zs = 0, zx = 0, xx = 0, suspects = 0;
    std::vector<double> zb, bb;                          // [blocks]
    std::vector<double> column_n, column_z, column_zz, column_zs;   // [columns]
    std::vector<Place> places;                           // some of the suspects
};

struct SpreadJob {
    const Packed* w;
    const int8_t* codes;                  // [n][cols]
    const float* scales;                  // [n][cols/32]
    bool narrow_scales;                   // they were float16: their product with a float16 weight scale is exact
    Order order;
    const int64_t* rows;                  // row numbers, grouped by expert
    const Run* runs;
    int64_t n_runs;
    const float* y;                       // [n][rows]
    BiasSums* out;                        // [n_runs]
    int threads;
};

struct ExpertSpreadJob {
    const float* y;                       // [n*k][m], the rows that were summed
    const float* weights;                 // [n][k]
    const int32_t* slots;                 // [n][k]: slots in the order of the sum
    const float* yl;                      // [n][m]
    int64_t n, k, m;
    bool once;                            // summed in double and rounded once
    int64_t rows_per_part;
    BiasSums* out;                        // [ceil(n / rows_per_part)]
    int threads;
};

struct SpreadTable {
    const char* name;
    void (*rows)(const SpreadJob&);
    void (*experts)(const ExpertSpreadJob&);
};

}  // namespace e0_oracle
