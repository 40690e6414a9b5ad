// Row kernels: norm, rotation, residual, SwiGLU of the float mode, weighted expert sum, route, head.
#include "engine/f64math.h"
#include "engine/rows.h"
#include "port/simd.h"
#include "port/exp.h"

namespace e0 {
namespace E0_ISA {

// y = f32(x * r * w) in double, r = 1/sqrt(mean(x^2) + eps).  Squares of floats are exact in double; value i goes to partial sum
// i mod 8 in ascending order, and the eight are added as ((0+4)+(2+6)) + ((1+5)+(3+7)), whatever the width of the registers.
void rmsnorm(const float* x, const float* w, float* y, int64_t n, double eps) {
    double p[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; ++j) p[j] = p[j] + (double)x[i + j] * (double)x[i + j];
    for (int j = 0; i < n; ++i, ++j) p[j] = p[j] + (double)x[i] * (double)x[i];
    double sum = ((p[0] + p[4]) + (p[2] + p[6])) + ((p[1] + p[5]) + (p[3] + p[7]));
    double r = 1.0 / __builtin_sqrt(sum / (double)n + eps);
    for (i = 0; i < n; ++i) y[i] = (float)(((double)x[i] * r) * (double)w[i]);
}

void rope_angles(int64_t position, const double* inv_freq, int64_t half, float* cos, float* sin) {
    for (int64_t i = 0; i < half; ++i) {
        double s, c;
        sincos_f64((double)position * inv_freq[i], s, c);
        cos[i] = (float)c;
        sin[i] = (float)s;
    }
}

// Half-split rotation of every head: a' = f(f(a*cos) - f(b*sin)), b' = f(f(b*cos) + f(a*sin)), a from the first half, b from the second.
void rope(float* x, const float* cos, const float* sin, int64_t heads, int64_t dim) {
    int64_t half = dim / 2;
    for (int64_t h = 0; h < heads; ++h, x += dim)
        for (int64_t i = 0; i < half; ++i) {
            float a = x[i], b = x[half + i];
            x[i] = a * cos[i] - b * sin[i];
            x[half + i] = b * cos[i] + a * sin[i];
        }
}

void add(float* x, const float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) x[i] = x[i] + y[i];
}

// h = f(f(g / f(1 + E(-g))) * u), as every variant's SwiGLU.
void swiglu(const float* gate, const float* up, float* h, int64_t n) {
    vf one = vset(1.0f), zero = vset(0.0f);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        vf g = vload(gate + i);
        vstore(h + i, vmul(vdiv(g, vadd(one, vexp(vsub(zero, g)))), vload(up + i)));
    }
    for (; i < n; ++i) h[i] = (gate[i] / (1.0f + exp1(0.0f - gate[i]))) * up[i];
}

// out = fma(w[slot], y[slot], out) in slot order from +0.
void weighted_sum(const float* y, const float* w, float* out, int64_t k, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        float acc = 0.0f;
        for (int64_t s = 0; s < k; ++s) acc = fma1(w[s], y[s * n + i], acc);
        out[i] = acc;
    }
}

// Larger value first, NaN as -inf, ties to the lower index: the strict order that every selection here uses.
static inline bool before(float a, int64_t ia, float b, int64_t ib) {
    const float lowest = -__builtin_inff();
    if (a != a) a = lowest;
    if (b != b) b = lowest;
    return a > b || (a == b && ia < ib);
}

// Indices of the k first in that order, by insertion into a sorted list: unique, whatever the values are.
static void first_k(const float* v, int64_t n, int64_t k, int32_t* ids) {
    int64_t held = 0;
    for (int64_t i = 0; i < n; ++i) {
        if (held == k && !before(v[i], i, v[ids[k - 1]], ids[k - 1])) continue;
        int64_t at = held < k ? held++ : k - 1;
        for (; at > 0 && before(v[i], i, v[ids[at - 1]], ids[at - 1]); --at) ids[at] = ids[at - 1];
        ids[at] = (int32_t)i;
    }
}

// Softmax over all experts in float32: e_i = E(l_i - max), sum ascending, p_i = f(e_i / sum); the chosen p are divided by their sum in
// slot order.  A NaN logit ranks last but makes every weight NaN: it must not vanish from what is compared.  Scratch: experts floats.
void route(const float* logits, int64_t experts, int64_t k, int32_t* ids, float* weights, float* scratch) {
    first_k(logits, experts, k, ids);
    float top = logits[ids[0]];
    float sum = 0.0f;
    for (int64_t i = 0; i < experts; ++i) {
        scratch[i] = exp1(logits[i] - top);
        sum = sum + scratch[i];
    }
    float chosen = 0.0f;
    for (int64_t s = 0; s < k; ++s) {
        weights[s] = scratch[ids[s]] / sum;
        chosen = chosen + weights[s];
    }
    for (int64_t s = 0; s < k; ++s) weights[s] = weights[s] / chosen;
}

// The k largest log-probabilities: f32((l - max) - ln(sum of e^(l - max))), the sum in double in ascending order over all n.
void top_logprobs(const float* logits, int64_t n, int64_t k, int32_t* ids, float* logprobs) {
    first_k(logits, n, k, ids);
    double top = (double)logits[ids[0]];
    double sum = 0.0;
    for (int64_t i = 0; i < n; ++i) sum = sum + exp_f64((double)logits[i] - top);
    double log_sum = log_f64(sum);
    for (int64_t s = 0; s < k; ++s) logprobs[s] = (float)(((double)logits[ids[s]] - top) - log_sum);
}

void sincos(const double* x, double* s, double* c, int64_t n) {
    for (int64_t i = 0; i < n; ++i) sincos_f64(x[i], s[i], c[i]);
}

void exp_log(const double* x, double* e, double* l, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        e[i] = exp_f64(x[i]);
        l[i] = log_f64(x[i]);
    }
}

}  // namespace E0_ISA
}  // namespace e0
