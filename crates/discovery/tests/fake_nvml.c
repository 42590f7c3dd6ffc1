/* A stand-in for NVIDIA's management library: two whole cards, one divided card and one that has fallen off the bus.
 *
 * HANGS: it never answers. SLOW: it answers after 700 ms. FAILS: its version is not the driver's. OLD: it knows nothing of
 * divided cards. Handles are 100 + index for cards and 1000 + place for parts.
 */
#include <stdio.h>
#include <stdint.h>
#include <unistd.h>

typedef int status;
typedef void *device;
enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, GPU_IS_LOST = 15, VERSION_MISMATCH = 18 };

struct memory { unsigned long long total, free, used; };
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char id_text[32]; };

static int started;

status nvmlInit_v2(void) {
#if defined(HANGS)
    for (;;) pause();
#elif defined(FAILS)
    return VERSION_MISMATCH;
#elif defined(SLOW)
    usleep(700 * 1000);
#endif
    started++;
    return SUCCESS;
}

status nvmlShutdown(void) { started--; return SUCCESS; }

const char *nvmlErrorString(status s) {
    switch (s) {
    case GPU_IS_LOST: return "GPU is lost";
    case VERSION_MISMATCH: return "Driver/library version mismatch";
    default: return 0;
    }
}

status nvmlDeviceGetCount_v2(unsigned *count) { *count = 4; return started == 1 ? SUCCESS : 1; }

status nvmlDeviceGetHandleByIndex_v2(unsigned index, device *d) {
    if (index == 3) return GPU_IS_LOST;
    *d = (device)(uintptr_t)(100 + index);
    return SUCCESS;
}

static unsigned number(device d) { return (unsigned)(uintptr_t)d; }

status nvmlDeviceGetName(device d, char *text, unsigned length) {
    snprintf(text, length, number(d) < 1000 ? "NVIDIA H200" : "NVIDIA H200 MIG 3g.71gb");
    return SUCCESS;
}

status nvmlDeviceGetUUID(device d, char *text, unsigned length) {
    snprintf(text, length, "%s-%u", number(d) < 1000 ? "GPU" : "MIG", number(d));
    return SUCCESS;
}

status nvmlDeviceGetMemoryInfo(device d, struct memory *memory) {
    if (number(d) == 101) return NOT_SUPPORTED;
    memory->total = number(d) < 1000 ? 141ULL << 30 : 71ULL << 30;
    return SUCCESS;
}

status nvmlDeviceGetPciInfo_v3(device d, struct pci *pci) {
    snprintf(pci->id_text, sizeof pci->id_text, "00000000:%02X:00.0", number(d));
    return SUCCESS;
}

status nvmlDeviceGetMinorNumber(device d, unsigned *minor) { *minor = number(d) - 100; return SUCCESS; }

#ifndef OLD
status nvmlDeviceGetMigMode(device d, unsigned *now, unsigned *later) {
    if (number(d) == 100) return NOT_SUPPORTED;
    *now = *later = number(d) == 102;
    return SUCCESS;
}

status nvmlDeviceGetMaxMigDeviceCount(device d, unsigned *count) { (void)d; *count = 4; return SUCCESS; }

status nvmlDeviceGetMigDeviceHandleByIndex(device d, unsigned index, device *part) {
    (void)d;
    if (index == 1) return NOT_FOUND;
    *part = (device)(uintptr_t)(1000 + index);
    return SUCCESS;
}

status nvmlDeviceGetGpuInstanceId(device d, unsigned *id) { *id = number(d) - 1000 + 1; return SUCCESS; }

status nvmlDeviceGetComputeInstanceId(device d, unsigned *id) { (void)d; *id = 0; return SUCCESS; }
#endif
