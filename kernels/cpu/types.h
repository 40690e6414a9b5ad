// Plain types shared by the CPU objects of every instruction set, the packing, and the bindings.  No code lives here, so that no
// inline function can be linked from an object built for another instruction set.
#pragma once
#include <cstddef>
#include <cstdint>

namespace e0 {

enum Format { Q8_0, Q4_0, Q3_K, IQ4_NL, kFormats };
enum Variant { REF, MMVQ, MMQ, W11, kVariants };
enum Quantiser { GGML_REF, Q_MMVQ, Q_MMQ, GGML_X86, kQuantisers };

// Weights as the CPU kernels read them: tiles of 16 rows, row r of the tile in lane r.  A byte is the signed factor plus 128, laid
// out as [group of four positions][row][position].  Rows past the matrix hold factor 0 and scale 0.
struct Block32 {                   // 32 positions of Q8_0, Q4_0 or IQ4_NL
    uint8_t w[8][64];
    float d[16];
};
struct Super {                     // 256 positions of Q3_K, folded: factor (4 - code) * (scale - 32), which fits int8 in this sign only
    uint8_t w[8][8][64];
    float d[16];
};
struct Plain32 {                   // 32 positions of Q3_K unfolded: byte = code 0..7 (factor code - 4), s = f(d * (scale - 32)) per 16
    uint8_t w[8][64];
    float s[2][16];
};

struct WeightView {
    int format;
    int64_t experts, rows, k, tiles;
    const Block32* blocks;         // [experts][tiles][k / 32], or null
    const Super* supers;           // [experts][tiles][k / 256], or null
    const Plain32* plain;          // [experts][tiles][k / 32], or null
    const uint8_t* raw;            // [experts][rows][row_bytes] as in the GGUF file: what the phase form reads
    int64_t row_bytes;
};

struct Codes {                     // rows quantised in blocks of 32; one of d16 and d32 is set, s may be null
    int8_t* codes;
    uint16_t* d16;
    float* d32;
    uint16_t* s;
};

struct RowsArgs {                  // D, U, linear: x [n, k] -> operands op -> out [n, rows]
    const WeightView* w;
    const float* x;
    int64_t n;
    Codes op;
    float* out;
    int threads;
};
struct A1Args {                    // pairs are token-major: pair = token * k + slot
    const WeightView *gate, *up;
    const float* xl;               // [n, latent], read by mmq
    Codes xlq;                     // [n, latent], read by the others
    const int32_t* ids;            // [n, k]
    int64_t n, k;
    float *gate_out, *up_out;      // [n * k, ff] or null
    Codes h;                       // [n * k, ff]
    int threads;
};
struct A2Args {
    const WeightView* down;
    Codes h;                       // [n * k, ff]
    const int32_t* ids;
    const float* route_weights;    // [n, k]
    int64_t n, k;
    float* y;                      // [n * k, latent]
    float* yl;                     // [n, latent]
    int threads;
};
struct QuantiseArgs {
    const float* x;
    int64_t n, k;
    Codes out;
    int threads;
};

typedef void (*RowsFn)(const RowsArgs&);
typedef void (*A1Fn)(const A1Args&);
typedef void (*A2Fn)(const A2Args&);
typedef void (*QuantiseFn)(const QuantiseArgs&);

// Index of each compiled entry: the order of entries.h.
enum EntryId {
#define E0_ENTRY(kind, key, stage, variant, format, VARIANT, FORMAT) ENTRY_##stage##_##variant##_##format,
#include "cpu/entries.h"
#undef E0_ENTRY
    kEntries
};

// One per object: baseline, avx2, avx512 from cpu/table.cpp, and a place for the portable phase form.
struct KernelTable {
    const char* isa;
    RowsFn rows[kEntries];         // null where an entry is of another kind
    A1Fn a1[kEntries];
    A2Fn a2[kEntries];
    QuantiseFn quantise[kQuantisers];
    void (*exp)(const float* x, float* out, int64_t n);
};

// ---- services of cpu/runtime.cpp -------------------------------------------------------------------------------------------
void count_launch(int entry);                        // called inside each compiled entry, nowhere else
int64_t launches(int entry);
void reset_launches();
// body(context, item) for each item; no result may depend on which thread takes which item
void parallel_items(int64_t items, int threads, void (*body)(void*, int64_t), void* context);
void* scratch(int slot, size_t bytes);               // this thread's buffer `slot`, 64-byte aligned, contents undefined, kept until regrown

}  // namespace e0
