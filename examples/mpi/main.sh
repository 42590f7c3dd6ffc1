set -e
# This script runs on the first node. Every node has a copy of this folder and compiles its own program.
hostler step --all mpicc -O2 -o pi pi.c
mpirun ./pi
