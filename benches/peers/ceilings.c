// What this machine can do at most: multiply-add rates from registers, and reading memory. One JSON line a result.
//
//   ceilings THREADS          each kernel with 1 and with THREADS threads, best of 3
//
// Builds with any C11 compiler (-O2 -pthread); a kernel is compiled for its own instruction set and run only where the
// CPU and the system have it. Rates count a multiplication and an addition as two operations. Elsewhere than on x86-64
// only the memory is measured.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MOST_THREADS = 512, BEST_OF = 3 };
static const size_t READ_BYTES = 256u << 20; // a thread; far more than the last cache level
static const double SECONDS = 0.4;           // about how long one measurement lasts

typedef void kernel_fn(long rounds, const char *memory);

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ---------------------------------------------------------------- kernels
// 16 independent chains hide the latency of any of these instructions. The empty asm keeps the compiler from seeing that
// the operands never change.
#define CHAINS 16
#define DOT_KERNEL(name, isa, vec, zero, operand, step)                      \
    __attribute__((target(isa))) static void name(long rounds, const char *memory) { \
        (void)memory;                                                        \
        vec a[CHAINS];                                                       \
        operand;                                                             \
        for (int i = 0; i < CHAINS; i++) a[i] = zero;                        \
        for (long r = 0; r < rounds; r++) {                                  \
            __asm__ volatile("" : "+v"(x), "+v"(y));                         \
            _Pragma("GCC unroll 16") for (int i = 0; i < CHAINS; i++) a[i] = step; \
        }                                                                    \
        for (int i = 0; i < CHAINS; i++) __asm__ volatile("" ::"v"(a[i]));   \
    }

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>

#define F32_512 __m512 x = _mm512_set1_ps(1e-9f), y = x
#define I32_512 __m512i x = _mm512_set1_epi32(1), y = x
#define F32_256 __m256 x = _mm256_set1_ps(1e-9f), y = x
#define I32_256 __m256i x = _mm256_set1_epi32(1), y = x
DOT_KERNEL(f32_avx512, "avx512f", __m512, _mm512_setzero_ps(), F32_512, _mm512_fmadd_ps(x, y, a[i]))
DOT_KERNEL(bf16_avx512, "avx512f,avx512bf16", __m512, _mm512_setzero_ps(), I32_512, _mm512_dpbf16_ps(a[i], (__m512bh)x, (__m512bh)y))
DOT_KERNEL(int8_avx512, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(), I32_512, _mm512_dpbusd_epi32(a[i], x, y))
#undef CHAINS // AVX2 has 16 registers, and two are operands
#define CHAINS 12
DOT_KERNEL(f32_avx2, "avx2,fma", __m256, _mm256_setzero_ps(), F32_256, _mm256_fmadd_ps(x, y, a[i]))
DOT_KERNEL(int8_avxvnni, "avx2,avxvnni", __m256i, _mm256_setzero_si256(), I32_256, _mm256_dpbusd_avx_epi32(a[i], x, y))

// Tiles of 16 rows of 64 bytes: four accumulators, two left and two right operands.
struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

#define TILE_KERNEL(name, isa, dot)                                          \
    __attribute__((target(isa))) static void name(long rounds, const char *memory) { \
        (void)memory;                                                        \
        struct tile_shapes shapes = {.palette = 1};                          \
        for (int i = 0; i < 8; i++) shapes.rows[i] = 16, shapes.row_bytes[i] = 64; \
        _tile_loadconfig(&shapes);                                           \
        _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);          \
        _tile_zero(4); _tile_zero(5); _tile_zero(6); _tile_zero(7);          \
        for (long r = 0; r < rounds; r++) {                                  \
            dot(0, 4, 6); dot(1, 4, 7); dot(2, 5, 6); dot(3, 5, 7);          \
        }                                                                    \
        _tile_release();                                                     \
    }
TILE_KERNEL(bf16_amx, "amx-tile,amx-bf16", _tile_dpbf16ps)
TILE_KERNEL(int8_amx, "amx-tile,amx-int8", _tile_dpbssd)

static uint64_t enabled_state(void) { // XCR0: what the system saves; CPUs without XSAVE never get here
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}

static int tiles_allowed(void) { // Linux lends tile registers to processes that ask (ARCH_REQ_XCOMP_PERM, XTILEDATA)
#ifdef __linux__
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
    return 0;
#endif
}
#endif

static void read_memory(long rounds, const char *memory) {
    typedef uint64_t vec __attribute__((vector_size(64)));
    vec sum[4] = {{0}};
    for (long r = 0; r < rounds; r++)
        for (const char *p = memory; p < memory + READ_BYTES; p += 512) {
            __builtin_prefetch(p + 4096);
            __builtin_prefetch(p + 4096 + 256);
            for (int i = 0; i < 8; i++) sum[i & 3] += *(const vec *)(p + 64 * i);
        }
    for (int i = 0; i < 4; i++) __asm__ volatile("" ::"m"(sum[i]));
}

// ---------------------------------------------------------------- measuring
struct job {
    kernel_fn *kernel;
    long rounds;
    const char *memory;
};

static void *run_job(void *data) {
    struct job *job = data;
    job->kernel(job->rounds, job->memory);
    return NULL;
}

static double seconds_of(kernel_fn *kernel, long rounds, int threads, const char *memory) {
    pthread_t ids[MOST_THREADS];
    struct job jobs[MOST_THREADS];
    double begin = now();
    for (int i = 0; i < threads; i++) {
        jobs[i] = (struct job){kernel, rounds, memory ? memory + (size_t)i * READ_BYTES : NULL};
        if (pthread_create(&ids[i], NULL, run_job, &jobs[i]) != 0) exit(1);
    }
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    return now() - begin;
}

// `work`: operations, or bytes, of one round of one thread.
static void measure(const char *what, const char *isa, const char *unit, kernel_fn *kernel, double work, int most, const char *memory) {
    long rounds = 1;
    double once = 0;
    while ((once = seconds_of(kernel, rounds, 1, memory)) < SECONDS / 8) rounds *= 2;
    rounds = (long)((double)rounds * SECONDS / once) + 1;
    for (int threads = 1;; threads = most) {
        double best = 1e30;
        for (int i = 0; i < BEST_OF; i++) {
            double s = seconds_of(kernel, rounds, threads, memory);
            if (s < best) best = s;
        }
        printf("{\"what\": \"%s\", \"isa\": \"%s\", \"unit\": \"%s\", \"threads\": %d, \"rate\": %.2f}\n", what, isa, unit,
               threads, work * (double)rounds * threads / best / 1e9);
        fflush(stdout);
        if (threads == most) return;
    }
}

static void measure_arithmetic(int threads) {
#if defined(__x86_64__)
    unsigned a = 0, b = 0, basic = 0, ebx = 0, ecx = 0, edx = 0, more = 0, c = 0, d = 0;
    __get_cpuid(1, &a, &b, &basic, &d);
    __get_cpuid_count(7, 0, &a, &ebx, &ecx, &edx);
    __get_cpuid_count(7, 1, &more, &b, &c, &d);
    uint64_t state = basic >> 27 & 1 ? enabled_state() : 0;
    int avx2 = (state & 6) == 6 && (ebx >> 5 & 1), fma = basic >> 12 & 1;
    int avx512 = (state & 0xe6) == 0xe6 && (ebx >> 16 & 1);
    int tiles = (state >> 17 & 3) == 3 && (edx >> 24 & 1) && tiles_allowed();
    if (avx512) measure("f32", "AVX-512", "GFLOP/s", f32_avx512, 16.0 * 2 * 16, threads, NULL);
    else if (avx2 && fma) measure("f32", "AVX2", "GFLOP/s", f32_avx2, 12.0 * 2 * 8, threads, NULL);
    if (avx512 && (more >> 5 & 1)) measure("bf16", "AVX-512", "GFLOP/s", bf16_avx512, 16.0 * 2 * 32, threads, NULL);
    if (avx512 && (ecx >> 11 & 1)) measure("int8", "AVX-512 VNNI", "GOP/s", int8_avx512, 16.0 * 2 * 64, threads, NULL);
    else if (avx2 && (more >> 4 & 1)) measure("int8", "AVX-VNNI", "GOP/s", int8_avxvnni, 12.0 * 2 * 32, threads, NULL);
    if (tiles && (edx >> 22 & 1)) measure("bf16", "AMX", "GFLOP/s", bf16_amx, 4.0 * 2 * 16 * 16 * 32, threads, NULL);
    if (tiles && (edx >> 25 & 1)) measure("int8", "AMX", "GOP/s", int8_amx, 4.0 * 2 * 16 * 16 * 64, threads, NULL);
#else
    (void)threads;
#endif
}

int main(int argc, char **argv) {
    int threads = argc == 2 ? atoi(argv[1]) : 0;
    if (threads < 1 || threads > MOST_THREADS) {
        fprintf(stderr, "usage: ceilings THREADS (1 to %d)\n", MOST_THREADS);
        return 2;
    }
    measure_arithmetic(threads);
    size_t bytes = READ_BYTES * (size_t)threads + 8192; // the prefetches reach a little over the end
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        fprintf(stderr, "ceilings: no %zu MiB of memory to read\n", bytes >> 20);
        return 1;
    }
#ifdef MADV_HUGEPAGE
    madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    memset(memory, 1, bytes);
    measure("read", "memory", "GB/s", read_memory, (double)READ_BYTES, threads, memory);
    return 0;
}
