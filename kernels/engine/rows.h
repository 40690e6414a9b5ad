// The functions of one instruction set that table.cpp collects.
#pragma once
#include "engine/table.h"

namespace e0 {
namespace E0_ISA {

void rmsnorm(const float* x, const float* w, float* y, int64_t n, double eps);
void rope_angles(int64_t position, const double* inv_freq, int64_t half, float* cos, float* sin);
void rope(float* x, const float* cos, const float* sin, int64_t heads, int64_t dim);
void add(float* x, const float* y, int64_t n);
void dense(const DenseItem& item);
void attend(const AttendItem& item);
void swiglu(const float* gate, const float* up, float* h, int64_t n);
void weighted_sum(const float* y, const float* w, float* out, int64_t k, int64_t n);
void route(const float* logits, int64_t experts, int64_t k, int32_t* ids, float* weights, float* scratch);
void top_logprobs(const float* logits, int64_t n, int64_t k, int32_t* ids, float* logprobs);
void sincos(const double* x, double* s, double* c, int64_t n);
void exp_log(const double* x, double* e, double* l, int64_t n);

}  // namespace E0_ISA
}  // namespace e0
