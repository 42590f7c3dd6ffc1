set -e
# This runs on the first node; every node has a copy of this folder, and compiles for itself.
hostler step --all mpicc -O2 -o pi pi.c
mpirun ./pi
