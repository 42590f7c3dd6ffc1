/* A program that uses Slurm's libpmi2: each process reads what its neighbour has stored. */
#include <slurm/pmi2.h>
#include <stdio.h>

int main(void) {
    int spawned, size, rank, appnum, length, found;
    char job[64], mapping[128], key[16], value[64], shared[64] = "none";
    if (PMI2_Init(&spawned, &size, &rank, &appnum) || PMI2_Job_GetId(job, sizeof job)) return 1;
    if (PMI2_Info_GetJobAttr("PMI_process_mapping", mapping, sizeof mapping, &found) || !found) return 2;
    snprintf(key, sizeof key, "key-%d", rank);
    snprintf(value, sizeof value, "a;b=%d;", rank);
    if (PMI2_KVS_Put(key, value) || PMI2_KVS_Fence()) return 3;
    snprintf(key, sizeof key, "key-%d", (rank + 1) % size);
    if (PMI2_KVS_Get(job, PMI2_ID_NULL, key, value, sizeof value, &length)) return 4;
    if (PMI2_KVS_Get(job, PMI2_ID_NULL, "unknown", key, sizeof key, &length) == PMI2_SUCCESS) return 5;
    /* The first process of each node stores a value that the other one awaits. */
    if (rank % 2 == 0) {
        snprintf(shared, sizeof shared, "of %d", rank);
        if (PMI2_Info_PutNodeAttr("shared", shared)) return 6;
    } else if (PMI2_Info_GetNodeAttr("shared", shared, sizeof shared, &found, 1) || !found) {
        return 7;
    }
    printf("%d of %d in %s: %s %s %s\n", rank, size, job, mapping, value, shared);
    return PMI2_Finalize();
}
