/* A driver library without a driver: one GPU, answers from the environment, time counted in GPM samples.

   STUB_<call>=<number>  that call fails with this error
   STUB_COUNT=<n>        so many GPUs, all with one handle, of which
   STUB_LOST=<n>         the first so many are lost
   STUB_GPM=1            GPM is supported; metric m between samples a and b is m + a + b
   STUB_STATUS_<m>=<n>   metric m has this status
   STUB_NAN=1            no metric has a number
   STUB_PIDS=<n>         this many processes on the GPU, the first of them listed twice
   STUB_UUID=<uuid>      the only one that is known
   STUB_INSTANCE=<n>     the handle is MIG instance n
   STUB_MIG=1            the GPU is split

   Layouts are written by hand from their documented sizes. With -DOLD the newer functions are not there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DONE = 0, UNSUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, VERSION = 25 };
#define UUID "GPU-00000000-0000-0000-0000-000000000001"

typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; } process;
typedef struct { unsigned long long total, available, used; } memory;
typedef struct { int ticks; } sample;
typedef struct { unsigned version, supported; } support;
typedef struct { unsigned id, status; double value; const char *short_name, *long_name, *unit; } metric;
typedef struct { unsigned version, count; sample *first, *last; metric metrics[]; } metrics;
typedef char metric_is_40_bytes[sizeof(metric) == 40 ? 1 : -1];
typedef char metrics_begin_at_24[sizeof(metrics) == 24 ? 1 : -1];

static int device = 1, parent = 2, opened = 0, samples = 0, ticks = 0;

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}
static int fails(const char *call) {
    char name[64];
    snprintf(name, sizeof name, "STUB_%s", call);
    return number(name, DONE);
}
#define CHECK(call) do { int code = fails(call); if (code != DONE) return code; } while (0)

int stub_open(void) { return opened; }
int stub_samples(void) { return samples; }
const char *nvmlErrorString(int code) { return code == 1234 ? "stub error" : "another error"; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; ticks = 0; CHECK("INIT"); opened++; return DONE; }
int nvmlShutdown(void) { opened--; CHECK("SHUTDOWN"); return DONE; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "550.1"); return DONE; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = number("STUB_COUNT", 1); return DONE; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    *handle = &device;
    return index < (unsigned)number("STUB_LOST", 0) ? 15 : DONE;
}
int nvmlDeviceGetName(void *handle, char *text, unsigned size) { (void)handle; snprintf(text, size, "Stub"); return DONE; }
int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) { (void)handle; snprintf(text, size, UUID); return DONE; }
int nvmlDeviceGetMemoryInfo(void *handle, memory *info) {
    (void)handle;
    CHECK("MEMORY");
    info->total = 1ull << 34;
    return DONE;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    CHECK("HANDLE");
    *handle = &device;
    return strcmp(uuid, getenv("STUB_UUID") ? getenv("STUB_UUID") : UUID) ? NOT_FOUND : DONE;
}
int nvmlDeviceIsMigDeviceHandle(void *handle, unsigned *is) { (void)handle; *is = getenv("STUB_INSTANCE") != NULL; return DONE; }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *handle, void **whole) { (void)handle; *whole = &parent; return DONE; }
int nvmlDeviceGetGpuInstanceId(void *handle, unsigned *id) { (void)handle; *id = number("STUB_INSTANCE", 0); return DONE; }
int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *next) {
    (void)handle;
    CHECK("MIG_MODE");
    *now = *next = number("STUB_MIG", 0);
    return DONE;
}
int nvmlDeviceGetUtilizationRates(void *handle, utilization *rates) {
    (void)handle;
    CHECK("UTILIZATION");
    rates->gpu = 100;
    rates->memory = 37;
    return DONE;
}
int nvmlDeviceGetPowerUsage(void *handle, unsigned *mw) { (void)handle; CHECK("POWER"); *mw = 350000; return DONE; }
int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *mj) {
    (void)handle;
    CHECK("ENERGY");
    *mj = 5000000000000ull; /* more than 32 bits hold */
    return DONE;
}
int nvmlDeviceGetClockInfo(void *handle, unsigned which, unsigned *mhz) {
    (void)handle;
    CHECK(which == 1 ? "SM_CLOCK" : "MEMORY_CLOCK");
    *mhz = which == 1 ? 1980 : 2619;
    return DONE;
}
static int running(unsigned *count, process *list) {
    unsigned there = number("STUB_PIDS", 3), room = *count;
    *count = there;
    if (there > room) return TOO_SMALL;
    for (unsigned i = 0; list && i < there; i++) list[i] = (process){.pid = i > 1 ? 100 + i : 101};
    return DONE;
}
int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *count, process *list) { (void)handle; CHECK("OLDER"); return running(count, list); }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *bits) { (void)handle; CHECK("OLDER"); *bits = 4; return DONE; }
#ifndef OLD
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process *list) { (void)handle; CHECK("PROCESSES"); return running(count, list); }
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *bits) { (void)handle; CHECK("THROTTLE"); *bits = 0x44; return DONE; }
int nvmlGpmQueryDeviceSupport(void *handle, support *answer) {
    (void)handle;
    CHECK("GPM_SUPPORT");
    if (answer->version != 1) return VERSION;
    answer->supported = number("STUB_GPM", 0);
    return DONE;
}
int nvmlGpmSampleAlloc(sample **made) { CHECK("GPM_ALLOC"); *made = calloc(1, sizeof **made); samples++; return DONE; }
int nvmlGpmSampleFree(sample *made) { samples--; CHECK("GPM_FREE"); free(made); return DONE; }
static int take(sample *into) { ticks++; CHECK("GPM_SAMPLE"); into->ticks = ticks; return DONE; }
int nvmlGpmSampleGet(void *handle, sample *into) { return handle == &device ? take(into) : UNSUPPORTED; }
int nvmlGpmMigSampleGet(void *handle, unsigned id, sample *into) {
    return handle == &parent && (int)id == number("STUB_INSTANCE", -1) ? take(into) : NOT_FOUND;
}
int nvmlGpmMetricsGet(metrics *asked) {
    CHECK("GPM_METRICS");
    if (asked->version != 1) return VERSION;
    if (asked->first->ticks >= asked->last->ticks) return 2;
    for (unsigned i = 0; i < asked->count; i++) {
        metric *each = &asked->metrics[i];
        char name[64];
        snprintf(name, sizeof name, "STUB_STATUS_%u", each->id);
        each->status = number(name, DONE);
        each->value = getenv("STUB_NAN") ? 0.0 / 0.0 : each->id + asked->first->ticks + asked->last->ticks;
    }
    return DONE;
}
#endif
