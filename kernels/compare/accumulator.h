// Feeds pieces of two tensors, in order and of any length, to the segment comparison and keeps the running result.
#pragma once
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "extents.h"
#include "onepass.h"
#include "port/pool.h"

namespace e0 {

struct Isa { const char* name; SegmentFn run; bool usable; };

inline std::vector<Isa> isas() {                                 // slowest first
    std::vector<Isa> all{{"baseline", baseline::compare_segment, true}};
#if defined(E0_HAVE_avx2)
    all.push_back({"avx2", avx2::compare_segment, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")});
#endif
#if defined(E0_HAVE_avx512)
    all.push_back({"avx512", avx512::compare_segment,
                   __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni")});
#endif
    return all;
}

class Accumulator {
public:
    Accumulator(Options opt, SegmentFn run, int threads) : opt_(opt), run_(run), threads_(threads), size_(dtype_bytes(opt.dtype)) {}

    void update(const char* a, const char* b, int64_t n) {
        if (held_) {                                              // complete the segment that an earlier piece began
            int64_t take = std::min(n, kSegment - held_);
            hold(a, b, take);
            a += take * size_, b += take * size_, n -= take;
            if (held_ == kSegment) flush();
        }
        int64_t whole = n / kSegment;
        for (int64_t done = 0; done < whole;) {                   // in rounds, so that partials stay small beside the tensors
            int64_t round = std::min<int64_t>(whole - done, kRound);
            std::vector<Partial> parts(round);
            parallel_for(round, threads_, [&](int64_t i) {
                int64_t at = (done + i) * kSegment;
                run_(a + at * size_, b + at * size_, kSegment, total_.n + i * kSegment, opt_, parts[i]);
            });
            for (auto& part : parts) total_.merge(part);
            done += round;
        }
        hold(a + whole * kSegment * size_, b + whole * kSegment * size_, n - whole * kSegment);
    }

    // Two whole datasets of n elements, read by the threads that compare them: a segment of each is in a thread's cache at a time.
    void update_files(const Extents& a, const Extents& b, int64_t n) {
        if (total_.n || held_) throw std::runtime_error("a comparison from files must be the first");
        int64_t segments = (n + kSegment - 1) / kSegment;
        for (int64_t done = 0; done < segments;) {
            int64_t round = std::min<int64_t>(segments - done, kRound);
            std::vector<Partial> parts(round);
            parallel_for(round, threads_, [&](int64_t i) {
                static thread_local std::vector<char> buffer_a, buffer_b;
                int64_t at = (done + i) * kSegment, m = std::min(kSegment, n - at);
                buffer_a.resize(kSegment * size_);
                buffer_b.resize(kSegment * size_);
                a.read(buffer_a.data(), at * size_, m * size_);
                b.read(buffer_b.data(), at * size_, m * size_);
                run_(buffer_a.data(), buffer_b.data(), m, at, opt_, parts[i]);
            });
            for (auto& part : parts) total_.merge(part);
            done += round;
        }
    }

    Partial result() const {
        Partial r = total_;
        if (held_) {
            Partial rest;
            run_(carry_a_.data(), carry_b_.data(), held_, total_.n, opt_, rest);
            r.merge(rest);
        }
        return r;
    }

    int64_t element_bytes() const { return size_; }
    const Options& options() const { return opt_; }

private:
    static constexpr int64_t kRound = 1024;
    Options opt_;
    SegmentFn run_;
    int threads_;
    int64_t size_;
    Partial total_;
    std::vector<char> carry_a_, carry_b_;
    int64_t held_ = 0;

    void hold(const char* a, const char* b, int64_t n) {
        if (!n) return;
        if (carry_a_.empty()) carry_a_.resize(kSegment * size_), carry_b_.resize(kSegment * size_);
        std::memcpy(carry_a_.data() + held_ * size_, a, n * size_);
        std::memcpy(carry_b_.data() + held_ * size_, b, n * size_);
        held_ += n;
    }
    void flush() {
        Partial part;
        run_(carry_a_.data(), carry_b_.data(), held_, total_.n, opt_, part);
        total_.merge(part);
        held_ = 0;
    }
};

}  // namespace e0
