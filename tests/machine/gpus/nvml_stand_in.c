/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in of NVIDIA's management library: the same symbols and structures, answers read from the
 * file that NVML_STAND_IN names, anew at each question. A line is `card.FIELD = VALUE` (all cards),
 * `card3.FIELD = VALUE` (one), `mig0.FIELD` or a global name; `!CODE` as value is that error, and what
 * is not in the file is not supported. -DDRIVER=470 leaves out what drivers of that age lack;
 * 535043 is the driver whose process list has longer entries. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
#define CARDS 64
#define MIGS 1000

#ifndef DRIVER
#define DRIVER 580
#endif
#define MAJOR (DRIVER > 1000 ? DRIVER / 1000 : DRIVER)

typedef char *device; /* handle: a number, one more than the index; MIGS more for MIG instances */
typedef unsigned long long u64;

static int lookup(const char *key, char *value) {
    const char *path = getenv("NVML_STAND_IN");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[4096];
    int found = 0;
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) {
        char *separator = strstr(line, " = ");
        if (!separator) continue;
        *separator = 0;
        if (strcmp(line, key)) continue;
        strcpy(value, separator + 3);
        value[strcspn(value, "\n")] = 0;
        found = 1;
    }
    fclose(file);
    return found;
}

static int global(const char *name, char *value) {
    if (!lookup(name, value)) return NOT_SUPPORTED;
    return value[0] == '!' ? atoi(value + 1) : SUCCESS;
}

static int field(device handle, const char *name, char *value) {
    long number = (long)handle - 1;
    char key[256];
    if (number >= MIGS) {
        snprintf(key, sizeof key, "mig%ld.%s", number - MIGS, name);
        if (!lookup(key, value)) return NOT_SUPPORTED;
    } else {
        snprintf(key, sizeof key, "card%ld.%s", number, name);
        if (!lookup(key, value)) {
            snprintf(key, sizeof key, "card.%s", name);
            if (!lookup(key, value)) return NOT_SUPPORTED;
        }
    }
    return value[0] == '!' ? atoi(value + 1) : SUCCESS;
}

static int number(device handle, const char *name, unsigned *out) {
    char value[4096];
    int status = field(handle, name, value);
    if (status == SUCCESS) *out = (unsigned)strtoul(value, NULL, 10);
    return status;
}

static int text(device handle, const char *name, char *out, unsigned size) {
    char value[4096];
    int status = field(handle, name, value);
    if (status == SUCCESS) snprintf(out, size, "%s", value);
    return status;
}

/* the nth of several numbers in one value, as in "7,300" */
static int nth(device handle, const char *name, int place, u64 *out) {
    char value[4096], *part;
    int status = field(handle, name, value);
    if (status != SUCCESS) return status;
    for (part = strtok(value, ","); part && place; place--) part = strtok(NULL, ",");
    *out = part ? strtoull(part, NULL, 10) : 0;
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) {
    char value[4096];
    (void)flags;
    int status = global("init", value);
    return status == NOT_SUPPORTED ? SUCCESS : status;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == 999 ? "Unknown Error" : "an error of the stand-in"; }

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    char value[4096];
    int status = global("driver", value);
    if (status == SUCCESS) snprintf(out, size, "%s", value);
    return status;
}

static int cuda_version(int *out) {
    char value[4096];
    int status = global("cuda", value);
    if (status == SUCCESS) *out = atoi(value);
    return status;
}
int nvmlSystemGetCudaDriverVersion(int *out) { return cuda_version(out); }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { return cuda_version(out); }

int nvmlDeviceGetCount_v2(unsigned *out) {
    char value[4096];
    int status = global("cards", value);
    *out = status == SUCCESS ? (unsigned)atoi(value) : 0;
    return status == NOT_SUPPORTED ? SUCCESS : status;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *out) {
    char value[4096];
    unsigned count = 0;
    nvmlDeviceGetCount_v2(&count);
    if (index >= count) return INVALID_ARGUMENT;
    *out = (device)(long)(index + 1);
    int status = field(*out, "handle", value);
    return status == NOT_SUPPORTED ? SUCCESS : status;
}

int nvmlDeviceGetName(device card, char *out, unsigned size) { return text(card, "name", out, size); }
int nvmlDeviceGetUUID(device card, char *out, unsigned size) { return text(card, "uuid", out, size); }
int nvmlDeviceGetFanSpeed(device card, unsigned *out) { return number(card, "fan", out); }
int nvmlDeviceGetPerformanceState(device card, unsigned *out) { return number(card, "state", out); }
int nvmlDeviceGetPersistenceMode(device card, unsigned *out) { return number(card, "persistence", out); }
int nvmlDeviceGetPowerUsage(device card, unsigned *out) { return number(card, "power", out); }
int nvmlDeviceGetEnforcedPowerLimit(device card, unsigned *out) { return number(card, "power_limit", out); }
int nvmlDeviceGetDisplayActive(device card, unsigned *out) { return number(card, "display", out); }
int nvmlDeviceGetComputeMode(device card, unsigned *out) { return number(card, "compute_mode", out); }
int nvmlDeviceGetMaxMigDeviceCount(device card, unsigned *out) { return number(card, "max_mig", out); }
int nvmlDeviceGetGpuInstanceId(device card, unsigned *out) { return number(card, "gpu_instance", out); }
int nvmlDeviceGetComputeInstanceId(device card, unsigned *out) { return number(card, "compute_instance", out); }

#if MAJOR < 580
int nvmlDeviceGetTemperature(device card, unsigned sensor, unsigned *out) {
    (void)sensor;
    return number(card, "temperature", out);
}
#endif
#if MAJOR >= 550
struct temperature { unsigned version, sensor; int degrees; };
int nvmlDeviceGetTemperatureV(device card, struct temperature *out) {
    return number(card, "temperature", (unsigned *)&out->degrees);
}
#endif

int nvmlDeviceGetTemperatureThreshold(device card, unsigned threshold, unsigned *out) {
    return threshold == 1 ? number(card, "slowdown", out) : NOT_SUPPORTED;
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(device card, struct pci *out) {
    return text(card, "bus_id", out->bus_id, sizeof out->bus_id);
}

int nvmlDeviceGetCudaComputeCapability(device card, int *major, int *minor) {
    u64 high, low;
    int status = nth(card, "capability", 0, &high);
    if (status != SUCCESS || (status = nth(card, "capability", 1, &low)) != SUCCESS) return status;
    *major = (int)high, *minor = (int)low;
    return SUCCESS;
}

struct rates { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(device card, struct rates *out) {
    u64 gpu, memory;
    int status = nth(card, "utilization", 0, &gpu);
    if (status != SUCCESS || (status = nth(card, "utilization", 1, &memory)) != SUCCESS) return status;
    out->gpu = (unsigned)gpu, out->memory = (unsigned)memory;
    return SUCCESS;
}

static int two(device card, const char *name, unsigned *current, unsigned *pending) {
    int status = number(card, name, current);
    *pending = *current;
    return status;
}
int nvmlDeviceGetEccMode(device card, unsigned *now, unsigned *later) { return two(card, "ecc", now, later); }
int nvmlDeviceGetMigMode(device card, unsigned *now, unsigned *later) { return two(card, "mig", now, later); }

int nvmlDeviceGetTotalEccErrors(device card, unsigned kind, unsigned counter, u64 *out) {
    if (kind != 1 || counter != 0) return NOT_SUPPORTED;
    return nth(card, "ecc_errors", 0, out);
}

/* memory = TOTAL,RESERVED,USED; before 510 the reserved part counts as used */
struct memory { u64 total, free, used; };
int nvmlDeviceGetMemoryInfo(device card, struct memory *out) {
    u64 reserved;
    int status = nth(card, "memory", 0, &out->total);
    if (status != SUCCESS) return status;
    nth(card, "memory", 1, &reserved);
    nth(card, "memory", 2, &out->used);
    out->used += reserved;
    out->free = out->total - out->used;
    return SUCCESS;
}
#if MAJOR >= 510
struct memory_v2 { unsigned version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(device card, struct memory_v2 *out) {
    int status = out->version == 0x02000028 ? nth(card, "memory", 0, &out->total) : 25;
    if (status != SUCCESS) return status;
    nth(card, "memory", 1, &out->reserved);
    nth(card, "memory", 2, &out->used);
    out->free = out->total - out->used - out->reserved;
    return SUCCESS;
}
#endif

int nvmlDeviceGetMigDeviceHandleByIndex(device card, unsigned index, device *out) {
    char value[4096], key[64];
    (void)card;
    snprintf(key, sizeof key, "mig%u.uuid", index);
    if (!lookup(key, value)) return NOT_FOUND;
    *out = (device)(long)(MIGS + index + 1);
    return SUCCESS;
}

/* processes: PID:BYTES,PID:BYTES; BYTES of -1 is "not available" */
struct process { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; };
struct long_process { struct process process; u64 protected; };

static int list(device card, const char *kind, unsigned *count, char *out, size_t stride) {
    char value[4096], *part;
    unsigned have = 0, room = *count;
    int status = field(card, kind, value);
    if (status != SUCCESS) return status;
    for (part = strtok(value, ","); part; part = strtok(NULL, ",")) {
        struct process *entry = (struct process *)(out + have * stride);
        have++;
        if (have > room || !out) continue;
        memset(entry, 0, stride);
        entry->pid = (unsigned)strtoul(part, &part, 10);
        entry->used = *part ? (u64)strtoll(part + 1, NULL, 10) : 0;
        entry->gpu_instance = entry->compute_instance = 0xFFFFFFFF;
        if (stride > sizeof *entry) ((struct long_process *)entry)->protected = 0xFFFFFFFF;
    }
    *count = have;
    return have > room ? INSUFFICIENT_SIZE : SUCCESS;
}

#define LISTS(NAME, KIND, VERSION, ENTRY)                                                        \
    int nvmlDeviceGet##NAME##RunningProcesses##VERSION(device card, unsigned *count, void *out) { \
        return list(card, KIND, count, out, sizeof(ENTRY));                                      \
    }
LISTS(Compute, "compute", _v2, struct process)
LISTS(Graphics, "graphics", _v2, struct process)
LISTS(MPSCompute, "mps", _v2, struct process)
#if MAJOR >= 510
#if DRIVER == 535043
#define NEWEST struct long_process
#else
#define NEWEST struct process
#endif
LISTS(Compute, "compute", _v3, NEWEST)
LISTS(Graphics, "graphics", _v3, NEWEST)
LISTS(MPSCompute, "mps", _v3, NEWEST)
#endif
