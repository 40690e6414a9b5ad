#include "cpu/faults.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cpu/pack.h"
#include "port/half.h"

namespace e0 {

int planted_fault = NO_FAULT;

namespace {

float up(float v) { return std::nextafterf(v, v < 0 ? -INFINITY : INFINITY); }

// ---- weights: a copy packed from changed bytes, or a packed copy changed ---------------------------------------------------
bool in_bytes(const WeightView& w) {
    if (E0_FAULT(FLIP_HMASK_BIT)) return w.format == Q3_K;
    return E0_FAULT(NIBBLES_SWAPPED) && (w.format == Q4_0 || w.format == IQ4_NL);
}
bool in_packed() {
    return E0_FAULT(WEIGHT_SCALE_21) || E0_FAULT(BLOCK_SCALE_18) || E0_FAULT(SCALE_INVERTED) || E0_FAULT(SCALE_ROWS_SWAPPED) ||
           E0_FAULT(WEIGHT_ROW_SHIFTED);
}
void change_bytes(const WeightView& w, std::vector<uint8_t>& raw) {
    if (E0_FAULT(FLIP_HMASK_BIT)) {
        const int64_t row = w.rows > 5 ? 5 : 0;
        for (int64_t e = 0; e < w.experts; ++e) raw[(size_t)((e * w.rows + row) * w.row_bytes + 3)] ^= 1;
        return;
    }
    for (size_t i = 0; i < raw.size(); ++i)
        if (i % 18 >= 2) raw[i] = (uint8_t)(raw[i] << 4 | raw[i] >> 4);
}
// sixteen scales of block b
void change_scales(float* d, int64_t b) {
    for (int r = 0; r < 16; ++r) {
        if (E0_FAULT(WEIGHT_SCALE_21)) d[r] *= 1.0f + 0x1p-21f;
        if (E0_FAULT(BLOCK_SCALE_18) && b == 1) d[r] *= 1.0f + 0x1p-18f;
        if (E0_FAULT(SCALE_INVERTED) && d[r] != 0) d[r] = 1.0f / d[r];
    }
    if (E0_FAULT(SCALE_ROWS_SWAPPED))
        for (int r = 0; r < 16; r += 2) std::swap(d[r], d[r + 1]);
}
void shift_row(uint8_t* w) {
    if (E0_FAULT(WEIGHT_ROW_SHIFTED)) std::memcpy(w + 12, w + 16, 4);
}
void change_packed(const WeightView& w) {
    const int64_t nb = w.k / 32, n = w.experts * w.tiles * nb;
    for (int64_t i = 0; w.blocks && i < n; ++i) {
        Block32& o = const_cast<Block32&>(w.blocks[i]);
        change_scales(o.d, i % nb);
        for (auto& group : o.w) shift_row(group);
    }
    for (int64_t i = 0; w.supers && i < n / 8; ++i) {
        Super& o = const_cast<Super&>(w.supers[i]);
        change_scales(o.d, i % (nb / 8));
        for (auto& block : o.w)
            for (auto& group : block) shift_row(group);
    }
    for (int64_t i = 0; w.plain && i < n; ++i) {
        Plain32& o = const_cast<Plain32&>(w.plain[i]);
        for (auto& s : o.s) change_scales(s, i % nb / 8);
        for (auto& group : o.w) shift_row(group);
    }
}

}  // namespace

// Copies are kept: a fault stays planted for many launches, and packing is far slower than a launch.
const WeightView* faulted(const WeightView* w) {
    if (!in_bytes(*w) && !in_packed()) return w;
    static std::mutex guard;
    static std::map<std::pair<const uint8_t*, int>, std::pair<std::vector<uint8_t>, std::unique_ptr<Packed>>> copies;
    std::lock_guard<std::mutex> lock(guard);
    std::vector<uint8_t> raw(w->raw, w->raw + w->experts * w->rows * w->row_bytes);
    auto& copy = copies[{w->raw, planted_fault}];
    if (!copy.second || copy.first != raw || copy.second->view().k != w->k || copy.second->view().rows != w->rows ||
        copy.second->view().format != w->format) {
        copy.first = raw;
        if (in_bytes(*w)) change_bytes(*w, raw);
        copy.second = std::make_unique<Packed>((Format)w->format, raw.data(), w->experts, w->rows, w->k);
        if (in_packed()) change_packed(copy.second->view());
    }
    return &copy.second->view();
}

// ---- operands --------------------------------------------------------------------------------------------------------------
Codes faulted_operands(const Codes& in, const float* x, int64_t* rows, int count, int64_t k) {
    const bool scales = E0_FAULT(ACTIVATION_SCALE_ULP) || E0_FAULT(ACTIVATION_SCALE_ULP_ONE) || (E0_FAULT(F32_OPERAND_SCALE) && x);
    if (!scales && !E0_FAULT(DROP_BLOCK) && !E0_FAULT(DROP_K_HALF) && !E0_FAULT(BLOCKS_SWAPPED) && !E0_FAULT(STALE_TOKEN) &&
        !E0_FAULT(CODE_OFF_BY_ONE))
        return in;
    const int64_t nb = k / 32;
    char* own = (char*)scratch(14, (size_t)(16 * (k + 4 * nb)));
    Codes out = {(int8_t*)(own + 16 * 4 * nb), nullptr, (float*)own, nullptr};
    if (E0_FAULT(STALE_TOKEN) && count > 3) rows[3] = rows[2];
    for (int t = 0; t < count; ++t) {
        int8_t* c = out.codes + t * k;
        float* d = out.d32 + t * nb;
        std::memcpy(c, in.codes + rows[t] * k, (size_t)k);
        for (int64_t b = 0; b < nb; ++b) {
            d[b] = in.d32 ? in.d32[rows[t] * nb + b] : half_to_float(in.d16[rows[t] * nb + b]);
            if (E0_FAULT(ACTIVATION_SCALE_ULP) || (E0_FAULT(ACTIVATION_SCALE_ULP_ONE) && b == 1)) d[b] = up(d[b]);
            if (E0_FAULT(F32_OPERAND_SCALE) && x) {
                float amax = 0;
                for (int i = 0; i < 32; ++i) amax = std::max(amax, std::fabs(x[t * k + 32 * b + i]));
                d[b] = amax / 127.0f;
            }
            if (E0_FAULT(CODE_OFF_BY_ONE)) c[32 * b] += c[32 * b] < 127 ? 1 : -1;
        }
        if (E0_FAULT(DROP_BLOCK) && nb > 1) std::memset(c + 32, 0, 32);
        if (E0_FAULT(DROP_K_HALF)) std::memset(c + k / 2, 0, (size_t)(k - k / 2));
        if (E0_FAULT(BLOCKS_SWAPPED) && nb > 1) {
            std::swap_ranges(c, c + 32, c + 32);
            std::swap(d[0], d[1]);
        }
    }
    for (int t = 0; t < count; ++t) rows[t] = t;
    return out;
}

// ---- results ---------------------------------------------------------------------------------------------------------------
void faulted_rows(float (*out)[16], int64_t tile, int count, int64_t rows) {
    for (int t = 0; t < count; ++t)
        for (int r = 0; r < 16; ++r) {
            float& v = out[t][r];
            if (E0_FAULT(ROWS_F16)) v = half_to_float(float_to_half(v));
            if (E0_FAULT(EVERY_7TH_ROW_ULP) && (16 * tile + r) % 7 == 0) v = up(v);
            if (E0_FAULT(ONE_COLUMN_ZERO) && 16 * tile + r == 9) v = 0.0f;
            if (E0_FAULT(LAST_ROW_NAN) && 16 * tile + r == rows - 1) v = std::nanf("");
        }
}

int32_t faulted_dot(int32_t c) { return E0_FAULT(DOT_SATURATES) ? std::max(-32768, std::min(32767, c)) : c; }

float to_bf16(float v) {
    uint32_t u;
    std::memcpy(&u, &v, 4);
    u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
    std::memcpy(&v, &u, 4);
    return v;
}

float faulted_exp(float e) { return E0_FAULT(ROUGH_EXP) ? to_bf16(e) : e; }

void faulted_sum(float* sum, const float* a, const float* b, const float* c) {
    for (int i = 0; i < 16; ++i) {
        if (E0_FAULT(F16_ACCUMULATION)) sum[i] = half_to_float(float_to_half(sum[i]));
        if (E0_FAULT(BF16_ACCUMULATION)) sum[i] = to_bf16(sum[i]);
        if (E0_FAULT(ROUND_TOWARD_ZERO)) {
            const double exact = (double)a[i] * b[i] + c[i];
            if (std::fabs((double)sum[i]) > std::fabs(exact)) sum[i] = std::nextafterf(sum[i], 0.0f);
        }
    }
}

void faulted_store(const float* x, const Codes& out, int64_t row, int64_t k) {
    const int64_t nb = k / 32;
    for (int64_t b = 0; b < nb; ++b) {
        const int64_t at = row * nb + b;
        if (E0_FAULT(STORE_TRUNCATES)) {
            const float d = out.d32 ? out.d32[at] : half_to_float(out.d16[at]);
            for (int i = 0; d > 0 && i < 32; ++i)
                out.codes[row * k + 32 * b + i] = (int8_t)std::max(-127.0f, std::min(127.0f, std::trunc(x[32 * b + i] / d)));
        }
        if (E0_FAULT(STORE_NEXT_SCALE) && b + 1 < nb) {
            if (out.d32) out.d32[at] = out.d32[at + 1];
            if (out.d16) out.d16[at] = out.d16[at + 1];
        }
        if (E0_FAULT(SUM_OF_CODES) && out.s && out.d16) {
            int sum = 0;
            for (int i = 0; i < 32; ++i) sum += out.codes[row * k + 32 * b + i];
            out.s[at] = float_to_half(half_to_float(out.d16[at]) * (float)sum);
        }
    }
}

}  // namespace e0
