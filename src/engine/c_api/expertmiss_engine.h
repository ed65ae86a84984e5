/* The engine for programs in C and for other languages' foreign functions: lossless decoding on slots of experts.
 *
 * Every function that can fail returns 0 or a pointer; on failure it returns -1 or NULL, and em_error() says in one
 * sentence what was wrong, for the calling thread. A session is used by one thread at a time. */
#ifndef EXPERTMISS_ENGINE_H
#define EXPERTMISS_ENGINE_H

#include <stdint.h>

#if defined(__GNUC__)
#define EM_API __attribute__((visibility("default")))
#else
#define EM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct em_session em_session;

typedef struct em_options {
    const char* store;      /* "direct" or "mapped" */
    const char* device;     /* "cpu", a ggml device's name, "rpc:HOST:PORT" */
    const char* cache_type; /* of keys and values: "f16" or "f32" */
    int context;            /* tokens */
    int batch;              /* prompt tokens computed at once */
    int threads;            /* of the model */
    int io_threads;         /* reads under way at once */
    int flash_attention;    /* 0 or 1 */
} em_options;

typedef struct em_traffic {
    int64_t fetches;  /* experts read because a step needed them */
    uint64_t bytes;   /* read, starts included */
    double waiting;   /* seconds in which steps waited for reads */
    double computing; /* seconds of decoding, waiting included */
} em_traffic;

EM_API em_options em_default_options(void);
EM_API const char* em_error(void);

/* Loads a GGUF model; NULL options are the default ones. */
EM_API em_session* em_open(const char* path, const em_options* options);
EM_API void em_close(em_session* session);

EM_API int em_layers(const em_session* session);  /* with experts */
EM_API int em_experts(const em_session* session); /* E */
EM_API int em_top_k(const em_session* session);   /* K */
EM_API int em_vocabulary(const em_session* session);

/* Decodes from now on with `capacity` experts of every layer resident (least recently used leaves, cold start, every
 * miss fetched), or on stock llama.cpp. */
EM_API int em_start(em_session* session, int capacity);
EM_API int em_start_stock(em_session* session);

/* Forgets the text. */
EM_API int em_reset(em_session* session);
/* Logits [vocabulary] after the prompt, or after one more token; valid until the session's next call. */
EM_API const float* em_prefill(em_session* session, const int* tokens, int count);
EM_API const float* em_step(em_session* session, int token);

/* Compares every slot with the file; the number of slots, -1 where one differs. */
EM_API int em_verify(em_session* session);
/* Zeros on stock llama.cpp. */
EM_API em_traffic em_read_traffic(em_session* session);

#ifdef __cplusplus
}
#endif

#endif
