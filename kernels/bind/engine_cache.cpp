#include "bind/engine_cache.h"

#include <cstring>
#include <new>
#include <stdexcept>

namespace e0 {

void Floats::grow(int64_t size) {
    if (size <= size_) return;
    int64_t bytes = (size * 4 + 63) / 64 * 64;
    float* p = static_cast<float*>(std::aligned_alloc(64, bytes));
    if (!p) throw std::bad_alloc();
    if (size_) std::memcpy(p, data_, size_ * 4);
    std::memset(p + size_, 0, bytes - size_ * 4);
    std::free(data_);
    data_ = p;
    size_ = size;
}

KvCache::KvCache(int64_t kv_heads, int64_t dim) : kv_heads_(kv_heads), dim_(dim), k_(kv_heads), v_(kv_heads) {
    if (kv_heads < 1 || dim < 16 || dim % 16) throw std::invalid_argument("KvCache: kv_heads >= 1 and a head dimension in multiples of 16");
}

void KvCache::append(const float* k, const float* v, int64_t tokens) {
    int64_t need = length_ + tokens;
    if (need > capacity_) {
        int64_t capacity = capacity_ ? capacity_ : 256;
        while (capacity < need) capacity *= 2;
        for (int64_t h = 0; h < kv_heads_; ++h) {
            k_[h].grow(capacity * dim_);
            v_[h].grow(capacity * dim_);
        }
        capacity_ = capacity;
    }
    for (int64_t h = 0; h < kv_heads_; ++h)
        for (int64_t t = 0; t < tokens; ++t) {
            int64_t key = length_ + t;
            const float* from = k + (t * kv_heads_ + h) * dim_;
            float* tile = k_[h].data() + key / 16 * 16 * dim_ + key % 16;
            for (int64_t d = 0; d < dim_; ++d) tile[d * 16] = from[d];
            std::memcpy(v_[h].data() + key * dim_, v + (t * kv_heads_ + h) * dim_, dim_ * 4);
        }
    length_ = need;
}

void KvCache::truncate(int64_t length) {
    if (length < 0 || length > length_) throw std::out_of_range("KvCache.truncate: length outside 0 .. what is held");
    length_ = length;
}

void KvCache::read(float* k, float* v) const {
    for (int64_t t = 0; t < length_; ++t)
        for (int64_t h = 0; h < kv_heads_; ++h) {
            const float* tile = k_[h].data() + t / 16 * 16 * dim_ + t % 16;
            for (int64_t d = 0; d < dim_; ++d) k[(t * kv_heads_ + h) * dim_ + d] = tile[d * 16];
            std::memcpy(v + (t * kv_heads_ + h) * dim_, v_[h].data() + t * dim_, dim_ * 4);
        }
}

}  // namespace e0
