// One layer's keys and values, laid out for the attention kernel.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace e0 {

// 64-byte aligned floats that only grow.
class Floats {
public:
    Floats() = default;
    Floats(const Floats&) = delete;
    Floats& operator=(const Floats&) = delete;
    Floats(Floats&& o) noexcept : data_(o.data_), size_(o.size_) { o.data_ = nullptr; o.size_ = 0; }
    ~Floats() { std::free(data_); }
    void grow(int64_t size);               // keeps what is there, zeroes the rest
    float* data() { return data_; }
    const float* data() const { return data_; }
    int64_t size() const { return size_; }

private:
    float* data_ = nullptr;
    int64_t size_ = 0;
};

// K of each kv head in tiles of 16 keys, [tile][dim][16], so that sixteen keys are the lanes of a score; V of each head [key][dim].
class KvCache {
public:
    KvCache(int64_t kv_heads, int64_t dim);
    KvCache(const KvCache&) = delete;
    KvCache& operator=(const KvCache&) = delete;
    void append(const float* k, const float* v, int64_t tokens);   // rows of kv_heads*dim, keys already rotated
    void truncate(int64_t length);                                 // forgets what lies behind; throws std::out_of_range
    int64_t length() const { return length_; }
    int64_t kv_heads() const { return kv_heads_; }
    int64_t dim() const { return dim_; }
    int64_t capacity() const { return capacity_; }
    const float* k(int64_t head) const { return k_[head].data(); }
    const float* v(int64_t head) const { return v_[head].data(); }
    void read(float* k, float* v) const;                           // [length][kv_heads*dim], as appended

private:
    int64_t kv_heads_, dim_, length_ = 0, capacity_ = 0;
    std::vector<Floats> k_, v_;
};

}  // namespace e0
