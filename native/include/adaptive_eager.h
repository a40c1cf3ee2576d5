/* The C ABI of the native library: everything that Python binds (with cffi, ABI mode).
 *
 * This header is read by the C++ sources and by cffi's parser, so between the two cut marks it keeps to what
 * both understand: no includes, no macros. Functions that can fail return 0 on success and -1 on failure, with
 * the message in ae_last_error() (per thread). Strings returned as `char *` are the caller's to ae_free().
 */
#ifndef ADAPTIVE_EAGER_H
#define ADAPTIVE_EAGER_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)
/* cffi: begin */

/* Library. */
int ae_abi_version(void);
const char* ae_built_torch_version(void);
const char* ae_last_error(void);
void ae_free(char* text);
/* Registers kernels, allocator, guard and hooks with the dispatcher. Call once, after the backend was renamed. */
int ae_init(void);
/* Flushes pending work at interpreter exit; afterwards every op runs at its call. */
void ae_shutdown(void);

/* Mode: 0 eager, 1 adaptive. Setting it flushes first. */
int ae_mode(void);
int ae_set_mode(int mode);
int ae_launch_blocking(void);
void ae_set_launch_blocking(int on);

/* Launches what is recorded and waits for it. */
int ae_flush(int reason);
int ae_synchronize(void);
/* A process-wide setting that kernels read (thread count, determinism, default dtype, ...) is about to change:
 * flushes, and forgets what was learned under the old setting if `relearn`. */
int ae_context_changes(int relearn);

/* Counters. The order of fields is adaptive_eager.stats()'s. */
typedef struct {
  uint64_t ops_recorded;
  uint64_t ops_direct;
  uint64_t launches;
  uint64_t fragments_compiled;
  uint64_t fragments_cached;
  uint64_t fragment_hits;
  uint64_t fragment_misses;
  uint64_t fragment_evictions;
  uint64_t compile_ns;
  uint64_t record_ns;
  uint64_t launch_ns;
  uint64_t pending_ops;
  uint64_t pending_bytes;
} ae_stats;
void ae_get_stats(ae_stats* out);
void ae_reset_stats(void);

/* Reasons: why a region ended (flush) and why an op ran by itself (direct). Tables in native/tables. */
typedef struct {
  const char* name;
  const char* text;
  const char* hint;
  uint64_t count;
} ae_reason;
int ae_flush_reason_count(void);
int ae_flush_reason(int index, ae_reason* out);
int ae_direct_reason_count(void);
int ae_direct_reason(int index, ae_reason* out);

/* Policy constants: table in native/tables/policy.def. */
typedef struct {
  const char* name;
  int64_t initial;
  int64_t low;
  int64_t high;
  const char* why;
} ae_policy;
int ae_policy_count(void);
int ae_policy_describe(int index, ae_policy* out);
int64_t ae_policy_get(int index);
int ae_policy_set(int index, int64_t value);

/* JSON: {"regions": [{"id", "ops": [names], "launches", "ns", "ends": {reason: count}, "stage", "units": [{"name", "loops"}]}],
 *        "direct": [{"op", "reason", "count"}]}, the costliest first. A unit is an op as it is (0 loops) or fused loops. */
char* ae_explain(void);
/* JSON: one row an op of the exception and value-check tables, for the docs. */
char* ae_describe_ops(void);

/* Compile service: loops that are wanted, in LLVM IR, and what became of them.
 * next waits until a loop is wanted, at most timeout_ms. Returns 1 and fills `out`, 0 if none came, -1 once the library
 * shuts down or on an error. */
typedef struct {
  uint64_t id;
  char* name;
  char* ir;
} ae_compile_job;
int ae_compile_next(int timeout_ms, ae_compile_job* out);
/* The loop's function is at `address`; compiling took `ns`, or it came from the disk cache. */
int ae_compile_done(uint64_t id, uint64_t address, uint64_t ns, int cached);
int ae_compile_failed(uint64_t id, const char* why);
/* Loops that are wanted or being compiled. */
uint64_t ae_compile_pending(void);
/* The address of a routine that IR calls, 0 if there is none of this name. */
uint64_t ae_routine_address(const char* name);
/* JSON: [{"name", "state", "why", "ns", "cached"}], every loop of the process. */
char* ae_describe_kernels(void);
/* JSON: [{"op", "types": [names], "cut", "array", "how"}], the table of lowerings: elements in ATen's vector step and
 * the routine on arrays, null where there is none, on this machine or on one that has everything. */
char* ae_describe_lowerings(int everything);

/* Memory statistics of the device's caching allocator, in bytes and counts. */
typedef struct {
  int64_t allocated;
  int64_t allocated_peak;
  int64_t allocated_total;
  int64_t freed_total;
  int64_t reserved;
  int64_t reserved_peak;
  int64_t active_blocks;
  int64_t cached_blocks;
  int64_t cache_hits;
  int64_t cache_misses;
  int64_t cache_flushes;
  int64_t ooms;
} ae_memory;
void ae_memory_stats(ae_memory* out);
void ae_memory_reset_peak(void);
void ae_memory_reset_accumulated(void);
void ae_memory_empty_cache(void);
/* The most bytes that the allocator gets from the system; 0: as many as the machine has. */
void ae_memory_set_limit(int64_t bytes);

/* Milliseconds between two timed, recorded events, given by their addresses (torch.Event.event_id). */
double ae_elapsed_time(uint64_t start, uint64_t end);

/* Finished, stable host address of a storage: launches pending work and allocates lazily created memory.
 * `storage` is the StorageImpl's address (torch.UntypedStorage._cdata). Returns 0 on error. */
uint64_t ae_storage_address(uint64_t storage);

/* The cost of recording alone, for the benchmark: replays one recorded pointwise op `count` times through the
 * recorder without launching, and returns nanoseconds per op spent in record + key, output creation excluded. */
double ae_bench_record(int count);

/* For the benchmark of what recording alone costs: with 0, launches run nothing from then on, and every result is
 * garbage. */
void ae_bench_execution(int on);

/* cffi: end */
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
