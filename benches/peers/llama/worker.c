// Measures llama.cpp for ../run: loads one GGUF file, then answers one command a line with one JSON line.
//
//   llama_worker MODEL.gguf THREADS CONTEXT_TOKENS
//
//   prefill N SEED              one prompt of N tokens, logits of the last
//   decode BATCH CONTEXT NEW SEED
//                               BATCH sequences of CONTEXT tokens, then NEW greedy steps of all of them; the steps are
//                               timed. One sequence keeps the KV of its context for the next command that is the same
//   score CHUNKS N SEED TAIL    merely the prefill of the tokens that a scored batch has; no score is computed
//
// Settings are those of the project's own llama-bench: batch 2,048, micro-batch 512, memory-mapped file, repacked
// weights, flash attention where it can, f16 KV, an attached thread pool that polls (paused between commands, so that
// it takes no time from the other peers).
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ggml-cpu.h"
#include "llama.h"

enum { N_BATCH = 2048, N_UBATCH = 512, SHORT_CONTEXT = 256, MOST_SEQUENCES = 8, FIRST_PROMPT = 64 };

struct worker {
    struct llama_model *model;
    struct llama_context *contexts[MOST_SEQUENCES + 1]; // by number of sequences, made at first use
    struct llama_context *context;                      // the one in use
    struct ggml_threadpool *pool;
    struct llama_batch batch;
    int vocabulary, capacity, threads;
    // what the context of one sequence begins with, and the token after it; 0: not known
    int kept;
    long kept_seed;
    llama_token kept_next;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what) {
    fprintf(stderr, "llama_worker: %s\n", what);
    exit(1);
}

static void only_errors(enum ggml_log_level level, const char *text, void *data) {
    (void)data;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

// Token `i` of the sequence `seed`; every peer computes the same ones.
static llama_token token_at(long i, long seed) { return (llama_token)(1000 + (i * 7919 + seed * 104729) % 40000); }

static void push(struct worker *w, llama_token token, int position, int sequence, bool logits) {
    int i = w->batch.n_tokens++;
    w->batch.token[i] = token;
    w->batch.pos[i] = position;
    w->batch.n_seq_id[i] = 1;
    w->batch.seq_id[i][0] = sequence;
    w->batch.logits[i] = logits;
}

static void compute(struct worker *w) {
    if (llama_decode(w->context, w->batch) != 0) fail("llama_decode failed; is the context large enough?");
    w->batch.n_tokens = 0;
}

static llama_token greedy(struct worker *w, int row) {
    const float *logits = llama_get_logits_ith(w->context, row);
    int best = 0;
    for (int i = 1; i < w->vocabulary; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

// Uses the context for `sequences`; its KV is not shared among them, which is the faster way.
static void use_context(struct worker *w, int sequences) {
    struct llama_context **context = &w->contexts[sequences];
    if (!*context) {
        struct llama_context_params params = llama_context_default_params();
        params.n_ctx = (uint32_t)(sequences == 1 ? w->capacity : sequences * SHORT_CONTEXT);
        params.n_batch = N_BATCH;
        params.n_ubatch = N_UBATCH;
        params.n_seq_max = (uint32_t)sequences;
        params.n_threads = params.n_threads_batch = w->threads;
        *context = llama_init_from_model(w->model, params);
        if (!*context) fail("cannot make a context");
        llama_attach_threadpool(*context, w->pool, NULL);
    }
    w->context = *context;
}

static void clear(struct worker *w) {
    llama_memory_clear(llama_get_memory(w->context), false);
    w->kept = 0;
}

// One prompt: `n` tokens of `seed`, then `tail_n` of `tail`. Returns the next token.
static llama_token prefill(struct worker *w, int n, long seed, int tail_n, long tail) {
    int total = n + tail_n, row = 0;
    use_context(w, 1);
    clear(w);
    for (int i = 0; i < total; i++) {
        push(w, i < n ? token_at(i, seed) : token_at(i - n, tail), i, 0, i == total - 1);
        row = w->batch.n_tokens - 1;
        if (w->batch.n_tokens == N_BATCH || i == total - 1) compute(w);
    }
    return greedy(w, row);
}

static void run_prefill(struct worker *w, int n, long seed, int tail_n, long tail) {
    if (n + tail_n > w->capacity) fail("the prompt is longer than CONTEXT_TOKENS");
    double begin = now();
    llama_token next = prefill(w, n, seed, tail_n, tail);
    printf("{\"seconds\": %.6f, \"tokens\": %d, \"next\": %d}\n", now() - begin, n + tail_n, next);
}

// One sequence of `n` tokens, computed unless its KV is still there. Returns the next token.
static llama_token one_context(struct worker *w, int n, long seed) {
    use_context(w, 1);
    if (w->kept == n && w->kept_seed == seed && llama_memory_seq_rm(llama_get_memory(w->context), 0, n, -1))
        return w->kept_next;
    w->kept_next = prefill(w, n, seed, 0, 0);
    w->kept = n;
    w->kept_seed = seed;
    return w->kept_next;
}

// Several short ones in one batch.
static void many_contexts(struct worker *w, int sequences, int n, long seed, llama_token *next) {
    int row[MOST_SEQUENCES];
    use_context(w, sequences);
    clear(w);
    for (int s = 0; s < sequences; s++)
        for (int i = 0; i < n; i++) {
            push(w, token_at(i, seed + s), i, s, i == n - 1);
            row[s] = w->batch.n_tokens - 1;
        }
    compute(w);
    for (int s = 0; s < sequences; s++) next[s] = greedy(w, row[s]);
}

static void run_decode(struct worker *w, int sequences, int n, int steps, long seed) {
    llama_token next[MOST_SEQUENCES];
    if (sequences < 1 || sequences > MOST_SEQUENCES || n + steps > (sequences == 1 ? w->capacity : SHORT_CONTEXT))
        fail("decode: too many tokens");
    if (sequences == 1) next[0] = one_context(w, n, seed);
    else many_contexts(w, sequences, n, seed, next);
    double begin = now();
    for (int step = 0; step < steps; step++) {
        for (int s = 0; s < sequences; s++) push(w, next[s], n + step, s, true);
        compute(w);
        for (int s = 0; s < sequences; s++) next[s] = greedy(w, s);
    }
    printf("{\"seconds\": %.6f, \"tokens\": %d}\n", now() - begin, sequences * steps);
}

static struct worker load(const char *path, int threads, int capacity) {
    struct worker w = {.capacity = capacity, .threads = threads};
    llama_log_set(only_errors, NULL);
    llama_backend_init();
    w.model = llama_model_load_from_file(path, llama_model_default_params());
    if (!w.model) fail("cannot load the model");
    struct ggml_threadpool_params pool = ggml_threadpool_params_default(threads);
    w.pool = ggml_threadpool_new(&pool);
    if (!w.pool) fail("cannot make a thread pool");
    w.batch = llama_batch_init(N_BATCH, 0, 1);
    w.vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(w.model));
    return w;
}

int main(int argc, char **argv) {
    double begin = now();
    if (argc != 4) fail("usage: llama_worker MODEL.gguf THREADS CONTEXT_TOKENS (see the top of worker.c)");
    struct worker w = load(argv[1], atoi(argv[2]), atoi(argv[3]));
    prefill(&w, FIRST_PROMPT, 1, 0, 0);
    printf("{\"first_s\": %.6f, \"computes\": \"int8 dot products of the file's quantised weights, f16 KV\"}\n", now() - begin);
    fflush(stdout);
    char line[256];
    int a, b, e;
    long c, d;
    ggml_threadpool_pause(w.pool);
    while (fgets(line, sizeof line, stdin)) {
        ggml_threadpool_resume(w.pool);
        if (sscanf(line, "prefill %d %ld", &a, &c) == 2) run_prefill(&w, a, c, 0, 0);
        else if (sscanf(line, "decode %d %d %d %ld", &a, &b, &e, &c) == 4) run_decode(&w, a, b, e, c);
        // as in ../../common: 40 tokens of head, 4 of marker and separator a chunk, a tail of 25
        else if (sscanf(line, "score %d %d %ld %ld", &a, &b, &c, &d) == 4) run_prefill(&w, 40 + a * (b + 4), c, 25, d);
        else fail("unknown command");
        fflush(stdout);
        ggml_threadpool_pause(w.pool);
    }
    for (int i = 0; i <= MOST_SEQUENCES; i++)
        if (w.contexts[i]) llama_free(w.contexts[i]);
    llama_model_free(w.model);
    ggml_threadpool_free(w.pool);
    return 0;
}
