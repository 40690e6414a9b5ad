// A libamdhip64 over host memory, for tests of the adapter: two devices, everything done when a call returns.
// The call named by e0_fake_fail() returns its error code and does nothing; e0_fake_calls() counts the calls of a name.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char failing[64];
static int failing_code, current, last, live;
static int peers[2][2];
static unsigned char properties[8192];
static size_t properties_size;
static struct { char name[64]; int count; } calls[128];
static struct { char* at; size_t size; int device, kind; } memory[256];

void e0_fake_fail(const char* name, int code) { strncpy(failing, name, sizeof failing - 1); failing_code = code; }
void e0_fake_properties(const void* p, size_t size) { memcpy(properties, p, size); properties_size = size; }
void e0_fake_reset(void) { memset(peers, 0, sizeof peers); failing[0] = 0; }
int e0_fake_live(void) { return live; }
int e0_fake_current(void) { return current; }
int e0_fake_calls(const char* name) {
    for (int i = 0; i < 128; ++i)
        if (strcmp(calls[i].name, name) == 0) return calls[i].count;
    return 0;
}
static int enter(const char* name) {
    for (int i = 0; i < 128; ++i) {
        if (!calls[i].name[0]) strncpy(calls[i].name, name, 63);
        if (strcmp(calls[i].name, name) == 0) { ++calls[i].count; break; }
    }
    return last = strcmp(failing, name) == 0 ? failing_code : 0;
}
#define ENTER do { const int code_ = enter(__func__); if (code_) return code_; } while (0)
#define API __attribute__((visibility("default"))) int

static int add(void** out, size_t size, int kind) {
    for (int i = 0; i < 256; ++i)
        if (!memory[i].at) {
            memory[i].at = calloc(1, size ? size : 1);
            memory[i].size = size;
            memory[i].device = current;
            memory[i].kind = kind;
            *out = memory[i].at;
            ++live;
            return 0;
        }
    return 2;
}
static int drop(void* p) {
    for (int i = 0; i < 256; ++i)
        if (memory[i].at == p && p) { free(p); memory[i].at = 0; --live; return 0; }
    return 1;
}

API hipGetLastError(void) { const int code = last; last = 0; return code; }
const char* hipGetErrorString(int code) { (void)code; return "error"; }
const char* hipGetErrorName(int code) { (void)code; return "error"; }
API hipGetDeviceCount(int* n) { ENTER; *n = 2; return 0; }
API hipSetDevice(int d) { ENTER; if (d < 0 || d > 1) return 101; current = d; return 0; }
API hipGetDevicePropertiesR0600(void* p, int d) { (void)d; const int c = enter("hipGetDeviceProperties"); if (c) return c; memcpy(p, properties, properties_size); return 0; }
API hipGetDeviceProperties(void* p, int d) { (void)d; ENTER; memcpy(p, properties, properties_size); return 0; }
API hipDriverGetVersion(int* v) { ENTER; *v = 70000000; return 0; }
API hipDeviceGetAttribute(int* v, int which, int d) { (void)which; (void)d; ENTER; *v = 1; return 0; }
API hipDeviceCanAccessPeer(int* v, int a, int b) { ENTER; *v = a != b; return 0; }
API hipDeviceEnablePeerAccess(int p, unsigned f) { (void)f; ENTER; if (peers[current][p]) return 704; peers[current][p] = 1; return 0; }
API hipDeviceDisablePeerAccess(int p) { ENTER; if (!peers[current][p]) return 705; peers[current][p] = 0; return 0; }
API hipMalloc(void** p, size_t n) { ENTER; return add(p, n, 2); }
API hipMallocManaged(void** p, size_t n, unsigned f) { (void)f; ENTER; return add(p, n, 3); }
API hipHostMalloc(void** p, size_t n, unsigned f) { (void)f; ENTER; return add(p, n, 1); }
API hipFree(void* p) { ENTER; return drop(p); }
API hipHostFree(void* p) { ENTER; return drop(p); }
API hipMemcpy(void* to, const void* from, size_t n, int kind) { (void)kind; ENTER; memmove(to, from, n); return 0; }
API hipMemcpyAsync(void* to, const void* from, size_t n, int kind, void* s) { (void)kind; (void)s; ENTER; memmove(to, from, n); return 0; }
API hipMemcpyPeer(void* to, int a, const void* from, int b, size_t n) { (void)a; (void)b; ENTER; memmove(to, from, n); return 0; }
API hipMemcpyPeerAsync(void* to, int a, const void* from, int b, size_t n, void* s) { (void)a; (void)b; (void)s; ENTER; memmove(to, from, n); return 0; }
API hipMemset(void* to, int v, size_t n) { ENTER; memset(to, v, n); return 0; }
API hipMemsetD8Async(void* to, unsigned char v, size_t n, void* s) { (void)s; ENTER; memset(to, v, n); return 0; }
API hipMemsetD16Async(void* to, unsigned short v, size_t n, void* s) { (void)s; ENTER; for (size_t i = 0; i < n; ++i) ((uint16_t*)to)[i] = v; return 0; }
API hipMemsetD32Async(void* to, int v, size_t n, void* s) { (void)s; ENTER; for (size_t i = 0; i < n; ++i) ((int32_t*)to)[i] = v; return 0; }
API hipDeviceSynchronize(void) { ENTER; return 0; }
API hipStreamSynchronize(void* s) { (void)s; ENTER; return 0; }
API hipStreamCreateWithFlags(void** s, unsigned f) { (void)f; ENTER; *s = (void*)0x1000; return 0; }
API hipEventCreateWithFlags(void** e, unsigned f) { (void)f; ENTER; *e = calloc(1, sizeof(struct timespec)); return 0; }
API hipEventRecord(void* e, void* s) { (void)s; ENTER; clock_gettime(CLOCK_MONOTONIC, (struct timespec*)e); return 0; }
API hipEventSynchronize(void* e) { (void)e; ENTER; return 0; }
API hipStreamWaitEvent(void* s, void* e, unsigned f) { (void)s; (void)e; (void)f; ENTER; return 0; }
API hipEventElapsedTime(float* ms, void* a, void* b) {
    ENTER;
    const struct timespec *x = a, *y = b;
    *ms = (float)((y->tv_sec - x->tv_sec) * 1e3 + (y->tv_nsec - x->tv_nsec) * 1e-6);
    return 0;
}
API hipPointerGetAttributes(void* out, const void* p) {
    ENTER;
    struct { int type, device; void *on_device, *on_host; int managed; unsigned flags; }* a = out;
    for (int i = 0; i < 256; ++i)
        if (memory[i].at && (const char*)p >= memory[i].at && (const char*)p < memory[i].at + memory[i].size) {
            a->type = memory[i].kind;
            a->device = memory[i].device;
            a->on_device = (void*)p;
            a->on_host = memory[i].kind == 2 ? 0 : (void*)p;
            return 0;
        }
    return 1;
}
API hipStreamBeginCapture(void* s, int mode) { (void)s; (void)mode; ENTER; return 0; }
API hipStreamEndCapture(void* s, void** g) { (void)s; ENTER; *g = (void*)0x2000; return 0; }
API hipGraphInstantiate(void** e, void* g, void* n, char* log, size_t size) { (void)g; (void)n; (void)log; (void)size; ENTER; *e = (void*)0x3000; return 0; }
API hipGraphInstantiateWithFlags(void** e, void* g, unsigned long long f) { (void)g; (void)f; ENTER; *e = (void*)0x3000; return 0; }
API hipGraphLaunch(void* e, void* s) { (void)e; (void)s; ENTER; return 0; }
API hipModuleLoadData(void** m, const void* image) { ENTER; if (memcmp(image, "FAKE", 4)) return 209; *m = (void*)0x4000; return 0; }
API hipModuleGetFunction(void** f, void* m, const char* name) { (void)m; ENTER; if (strcmp(name, "move")) return 500; *f = (void*)0x5000; return 0; }
// move(from, to, n), its arguments packed into one buffer as `extra` hands them over, or one pointer each.
API hipModuleLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void* s, void** params, void** extra) {
    (void)f; (void)gx; (void)gy; (void)gz; (void)bx; (void)by; (void)bz; (void)shared; (void)s;
    ENTER;
    if (params) { memmove(*(void**)params[1], *(void**)params[0], (size_t)*(int64_t*)params[2]); return 0; }
    for (int i = 0; extra && i < 8 && extra[i] != (void*)3; i += 2)
        if (extra[i] == (void*)1) { void** a = extra[i + 1]; memmove(a[1], a[0], (size_t)(int64_t)(intptr_t)a[2]); return 0; }
    return 1;
}
