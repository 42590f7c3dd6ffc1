/* Computes pi as the area under 4 / (1 + x^2). Each process adds a share of the strips. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STRIPS = 10000000, NAME = 64 };

int main(int argc, char **argv) {
    int rank, size, nodes = 0;
    double own = 0, pi = 0;
    char node[NAME] = "?", *all = NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    for (int strip = rank; strip < STRIPS; strip += size) {
        double x = (strip + 0.5) / STRIPS;
        own += 4 / (1 + x * x) / STRIPS;
    }
    MPI_Reduce(&own, &pi, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);

    if (getenv("HOSTLER_NODE")) strncpy(node, getenv("HOSTLER_NODE"), NAME - 1);
    if (rank == 0) all = calloc(size, NAME);
    MPI_Gather(node, NAME, MPI_CHAR, all, NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        for (int i = 0; i < size; i++) {
            int seen = 0;
            for (int j = 0; j < i; j++) seen |= !strcmp(all + i * NAME, all + j * NAME);
            nodes += !seen;
        }
        printf("pi is %.8f, by %d processes on %d nodes\n", pi, size, nodes);
    }
    return MPI_Finalize();
}
