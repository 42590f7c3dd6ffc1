"""Data-parallel training: every process has a share of the data and a copy of the model.

In each step, every process computes the gradient of its share. An all-reduce gives all processes the mean gradient; here, rank 0
collects and distributes it over plain TCP. So all processes make the same step, and the result equals that of one process with all data.

Hostler sets the variables RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in every process, which PyTorch uses too.
"""

import json
import os
import socket
import time

import numpy as np

SAMPLES, FEATURES, STEPS, RATE = 4096, 20, 200, 0.5


class Group:
    """The processes of one run, which can compute a mean over all of them."""

    def __init__(self, rank: int, size: int, address: tuple[str, int]):
        self.rank, self.size = rank, size
        self.peers: list[socket.socket] = []
        if rank == 0:
            with socket.create_server(address) as server:
                self.peers = [server.accept()[0] for _ in range(size - 1)]
        else:
            self.peers = [connect(address)]

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Return the mean of the `values` of all processes (float64, the same shape in each)."""
        if self.rank == 0:
            parts = [receive(peer, values) for peer in self.peers]
            # Sort before adding, so that the order of arrival does not change the rounding.
            total = np.sum(np.sort(np.stack([values, *parts]), axis=0), axis=0) / self.size
            for peer in self.peers:
                peer.sendall(total.tobytes())
            return total
        self.peers[0].sendall(values.tobytes())
        return receive(self.peers[0], values)


def connect(address: tuple[str, int]) -> socket.socket:
    """Connect to the process of rank 0, with retries until it listens."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection(address)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def receive(peer: socket.socket, like: np.ndarray) -> np.ndarray:
    """Receive an array with the shape and type of `like`."""
    data = bytearray()
    while len(data) < like.nbytes:
        part = peer.recv(like.nbytes - len(data))
        if not part:
            raise ConnectionError("another process has ended")
        data += part
    return np.frombuffer(bytes(data), dtype=like.dtype).reshape(like.shape)


def dataset() -> tuple[np.ndarray, np.ndarray]:
    """Return points (SAMPLES x FEATURES) and their classes (0 or 1), which are the same in every process."""
    random = np.random.default_rng(7)
    points = random.normal(size=(SAMPLES, FEATURES))
    direction = random.normal(size=FEATURES)
    return points, (points @ direction + random.normal(size=SAMPLES) > 0).astype(float)


def train(points: np.ndarray, classes: np.ndarray, mean) -> np.ndarray:
    """Train a logistic regression by gradient descent; `mean` averages a gradient over all processes."""
    weights = np.zeros(FEATURES)
    for _ in range(STEPS):
        guess = 1 / (1 + np.exp(-points @ weights))
        weights = weights - RATE * mean(points.T @ (guess - classes) / len(points))
    return weights


def main() -> None:
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    points, classes = dataset()
    mine = slice(rank * SAMPLES // size, (rank + 1) * SAMPLES // size)
    if size == 1:
        weights = train(points, classes, lambda gradient: gradient)
    else:
        group = Group(rank, size, (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        weights = train(points[mine], classes[mine], group.mean)
    accuracy = float(np.mean((points @ weights > 0) == (classes > 0)))
    print(f"rank {rank} of {size} on {os.environ.get('HOSTLER_NODE', 'this machine')}: accuracy {accuracy:.4f}")
    if rank == 0:
        alone = train(points, classes, lambda gradient: gradient)
        with open("model.json", "w") as file:
            difference = float(np.max(np.abs(weights - alone)))
            json.dump({"processes": size, "accuracy": accuracy, "difference_to_one_process": difference}, file)


if __name__ == "__main__":
    main()
