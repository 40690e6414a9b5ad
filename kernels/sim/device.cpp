// A simulated device: a process that owns an arena of memory and runs the compiled kernels on it.
//
//   _simdev INDEX SOCKET LIBRARY RATE FLIP_SEED FLIP_FROM CORRUPT_MASK  {FD:BASE:SIZE} ...
//
// Arena i is device i's memory, the last one is mapped host memory.  Every arena is mapped at the same address in every process:
// the own one and the host's for use, another device's without access until peer access is enabled.  A kernel that touches it dies
// of a real SIGSEGV; the handler only reports the address.  Copies and fills use a second mapping, as a DMA engine would.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "sim/wire.h"

#define E0_ISA sim
#include "probe/memory.h"

namespace e0sim {
namespace {

struct Arena {
    int fd;
    uint64_t base, size;
    uint8_t* dma;                  // the second mapping
    bool holds(uint64_t at, uint64_t bytes) const { return at >= base && bytes <= size && at - base <= size - bytes; }
};

int self, channel;
std::vector<Arena> arenas;
double rate;                       // bytes a second across the link; 0: as fast as it goes
uint64_t flip_seed, flip_from;     // a transfer of at least flip_from bytes over a corrupt link has flipped bytes
uint64_t corrupt_mask;             // bit i: what comes from or goes to device i is corrupt
void* const nowhere = (void*)0x1000;

typedef int (*LaunchByName)(const char*, int64_t, void**, int, int);
LaunchByName launch_by_name;

int arena_of(uint64_t at, uint64_t bytes) {
    for (size_t i = 0; i < arenas.size(); ++i)
        if (arenas[i].holds(at, bytes)) return (int)i;
    return -1;
}
bool foreign(int arena) { return arena != self && arena >= 0; }
bool corrupt(int arena) { return foreign(arena) && (corrupt_mask >> arena & 1); }

double seconds() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
// Keeps a transfer of `bytes` that began at `start` from being faster than the link.
void pace(uint64_t bytes, double start) {
    if (rate <= 0) return;
    const double left = (double)bytes / rate - (seconds() - start);
    if (left > 0) usleep((useconds_t)(left * 1e6));
}

uint64_t mix(uint64_t x) {
    x ^= x >> 33; x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33; x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ (x >> 33);
}
// Flips one byte in every 64 KiB, and one at least.
void flip(uint8_t* p, uint64_t bytes) {
    if (bytes < flip_from || bytes == 0) return;
    for (uint64_t k = 0; k < 1 + bytes / 65536; ++k) p[mix(flip_seed + k) % bytes] ^= (uint8_t)(1 + mix(flip_seed ^ (k + 7)) % 255);
}

void reply(int code, int number = 0, uint64_t address = 0) {
    const Reply r{code, number, address};
    if (send(channel, &r, sizeof r, MSG_NOSIGNAL) < 0) _exit(0);
}

// Only async-signal-safe calls; then the default action, so that the process dies of the signal itself.
void on_fault(int number, siginfo_t* info, void*) {
    const Reply r{number == SIGSEGV || number == SIGBUS ? ILLEGAL_ADDRESS : LAUNCH_FAILED, number, (uint64_t)info->si_addr};
    (void)!write(channel, &r, sizeof r);
    signal(number, SIG_DFL);
}

// A kernel across a corrupt link sees flipped bytes, and what it writes arrives flipped: it runs on a private copy of the pages.
struct Corrupted {
    Arena& arena;
    uint64_t at, bytes, page, length;
    std::vector<uint8_t> before;
    Corrupted(Arena& a, uint64_t pointer, uint64_t extent) : arena(a), at(pointer), bytes(extent) {
        page = at & ~4095ull;
        length = ((at + bytes + 4095) & ~4095ull) - page;
        mmap((void*)page, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, arena.fd, (off_t)(page - arena.base));
        flip((uint8_t*)at, bytes);
        before.assign((uint8_t*)at, (uint8_t*)at + bytes);
    }
    void finish() {
        uint8_t* real = arena.dma + (at - arena.base);
        const uint8_t* now = (const uint8_t*)at;
        bool wrote = false;
        for (uint64_t i = 0; i < bytes; ++i)
            if (now[i] != before[i]) { real[i] = now[i]; wrote = true; }
        if (wrote) flip(real, bytes);
        mmap((void*)page, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, arena.fd, (off_t)(page - arena.base));
    }
};

template <class... A, size_t... I>
void run(void (*kernel)(A...), int64_t blocks, void** args, std::index_sequence<I...>) {
    for (int64_t b = 0; b < blocks; ++b) {
        e0p::cpu_block = (int)b;
        kernel(*(A*)args[I]...);
    }
}
template <class... A>
int run(void (*kernel)(A...), int64_t blocks, void** args, int count) {
    if (count != (int)sizeof...(A)) return INVALID_VALUE;
    run(kernel, blocks, args, std::index_sequence_for<A...>{});
    return OK;
}

int dispatch(const char* name, int64_t blocks, void** args, int count) {
#define E0_CALL(kernel) if (std::strcmp(name, #kernel) == 0) return run(kernel, blocks, args, count)
    E0_CALL(e0_move_bytes);
    E0_CALL(e0_write_pattern);
    E0_CALL(e0_add_ones);
    E0_CALL(e0_gather_rows);
#undef E0_CALL
    const int code = launch_by_name(name, blocks, args, count, 1);
    return code == 0 ? OK : code == -1 ? NOT_FOUND : INVALID_VALUE;
}

bool peer_mapped[64];

int launch(const Command& c) {
    uint64_t value[kArgs];
    void* args[kArgs];
    std::vector<Corrupted> views;
    uint64_t across = 0;
    for (uint32_t i = 0; i < c.count; ++i) {
        const Arg& a = c.args[i];
        value[i] = a.value;
        args[i] = &value[i];
        if (a.kind != POINTER || a.value == 0) continue;
        const int arena = arena_of(a.value, 1);
        // This process has pages of its own that no page table of a device would hold: they must not answer.
        if (arena < 0) value[i] = (uint64_t)nowhere | (a.value & 0xfff);
        if (!foreign(arena)) continue;
        across += a.extent;
        if (corrupt(arena) && peer_mapped[arena]) views.emplace_back(arenas[(size_t)arena], a.value, a.extent);
    }
    const double start = seconds();
    const int code = dispatch(c.name, (int64_t)c.a, args, (int)c.count);
    for (auto& v : views) v.finish();
    pace(across, start);
    return code;
}

int copy(uint64_t to, uint64_t from, uint64_t bytes, bool wrong) {
    const int a = arena_of(to, bytes), b = arena_of(from, bytes);
    if (a < 0 || b < 0) return INVALID_VALUE;
    const double start = seconds();
    uint8_t* target = arenas[(size_t)a].dma + (to - arenas[(size_t)a].base);
    std::memmove(target, arenas[(size_t)b].dma + (from - arenas[(size_t)b].base), bytes);
    if (wrong || (a != b && (corrupt(a) || corrupt(b)))) flip(target, bytes);
    if (a != b) pace(bytes, start);
    return OK;
}

int fill(uint64_t to, uint64_t value, uint64_t bytes, uint64_t width) {
    const int a = arena_of(to, bytes);
    if (a < 0) return INVALID_VALUE;
    uint8_t* p = arenas[(size_t)a].dma + (to - arenas[(size_t)a].base);
    if (width == 1) std::memset(p, (int)value, bytes);
    else
        for (uint64_t i = 0; i < bytes; i += width) std::memcpy(p + i, &value, width);
    return OK;
}

int peer(uint64_t arena, bool allowed) {
    Arena& a = arenas[arena];
    const int access = allowed ? PROT_READ | PROT_WRITE : PROT_NONE;
    peer_mapped[arena] = allowed;
    return mprotect((void*)a.base, a.size, access) ? INVALID_VALUE : OK;
}

// The other end gone means that nobody waits for this device any more, whatever its kernel does.
void watch() {
    pollfd p{channel, POLLRDHUP, 0};
    while (poll(&p, 1, -1) < 0) {}
    _exit(0);
}

void serve() {
    Command c;
    for (;;) {
        const ssize_t got = recv(channel, &c, sizeof c, 0);
        if (got != (ssize_t)sizeof c) _exit(0);
        switch (c.op) {
            case LAUNCH: reply(launch(c)); break;
            case COPY: reply(copy(c.a, c.b, c.c, c.d != 0)); break;
            case FILL: reply(fill(c.a, c.b, c.c, c.d)); break;
            case PEER: reply(peer(c.a, c.b != 0)); break;
            case HANG: for (;;) pause();
            default: reply(OK);
        }
    }
}

int fail(const char* what) {
    std::fprintf(stderr, "simulated device %d: %s\n", self, what);
    return 1;
}

}  // namespace

int start(int argc, char** argv) {
    if (argc < 9) return fail("too few arguments");
    self = std::atoi(argv[1]);
    channel = std::atoi(argv[2]);
    rate = std::atof(argv[4]);
    flip_seed = std::strtoull(argv[5], nullptr, 10);
    flip_from = std::strtoull(argv[6], nullptr, 10);
    corrupt_mask = std::strtoull(argv[7], nullptr, 10);
    void* library = dlopen(argv[3], RTLD_NOW);
    launch_by_name = library ? (LaunchByName)dlsym(library, "e0_phase_launch") : nullptr;
    if (!launch_by_name) return fail("the kernel library does not load");
    const int last = argc - 1;
    for (int i = 8; i < argc; ++i) {
        Arena a{};
        unsigned long long base = 0, size = 0;
        if (std::sscanf(argv[i], "%d:%llu:%llu", &a.fd, &base, &size) != 3) return fail("bad arena");
        a.base = base;
        a.size = size;
        const int access = i - 8 == self || i == last ? PROT_READ | PROT_WRITE : PROT_NONE;
        void* at = mmap((void*)a.base, a.size, access, MAP_SHARED | MAP_FIXED_NOREPLACE, a.fd, 0);
        void* dma = mmap(nullptr, a.size, PROT_READ | PROT_WRITE, MAP_SHARED, a.fd, 0);
        if (at != (void*)a.base || dma == MAP_FAILED) return fail("an arena cannot be mapped");
        a.dma = (uint8_t*)dma;
        arenas.push_back(a);
    }
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(number, &action, nullptr);
    signal(SIGINT, SIG_IGN);           // the tool decides; its end closes the socket
    std::thread(watch).detach();
    reply(OK);
    serve();
    return 0;
}

}  // namespace e0sim

int main(int argc, char** argv) { return e0sim::start(argc, argv); }
