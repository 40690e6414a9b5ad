// Launch counters, the team of threads and per-thread scratch memory.
#include <atomic>
#include <cstdlib>
#include <new>

#include "cpu/types.h"
#include "port/pool.h"

namespace e0 {

static std::atomic<int64_t> counters[kEntries];

void count_launch(int entry) { counters[entry].fetch_add(1, std::memory_order_relaxed); }
int64_t launches(int entry) { return counters[entry].load(); }
void reset_launches() {
    for (auto& c : counters) c = 0;
}

void parallel_items(int64_t items, int threads, void (*body)(void*, int64_t), void* context) {
    parallel_for(items, threads, [=](int64_t item) { body(context, item); });
}

namespace {
struct Buffer {
    void* p = nullptr;
    size_t bytes = 0;
    ~Buffer() { std::free(p); }
};
thread_local Buffer buffers[24];      // slots 0..15: cpu/stages.h, 16..23: portable/table.cpp
}  // namespace

void* scratch(int slot, size_t bytes) {
    Buffer& b = buffers[slot];
    if (b.bytes < bytes) {
        std::free(b.p);
        b.bytes = 0;
        const size_t size = (bytes + bytes / 2 + 63) / 64 * 64;
        b.p = std::aligned_alloc(64, size);
        if (!b.p) throw std::bad_alloc();
        b.bytes = size;
    }
    return b.p;
}

}  // namespace e0
