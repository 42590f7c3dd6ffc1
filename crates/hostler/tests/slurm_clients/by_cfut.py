"""Uses a cluster as programs with clusterfutures do."""

import os
import sys

import cfut

os.chdir(sys.argv[1])


def square(number):
    return number * number


with cfut.SlurmExecutor(additional_setup_lines=["#SBATCH --mem=100"]) as executor:
    futures = [executor.submit(square, number) for number in range(4)]
    assert [future.result(60) for future in futures] == [0, 1, 4, 9]
print("done")
