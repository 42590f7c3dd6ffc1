#!/bin/sh
# Sets up the class on a new cluster: users, quotas, partitions and defaults. Run it as root on the head, again after each change:
#
#     setup.sh ROSTER [WORKERS] [USER-NODES]      e.g. setup.sh roster.csv 'lab*' 'user*'
set -eu

roster=$1 workers=${2:-node-*} user_nodes=${3:-user-*}

hostler --quiet configure user import "$roster"

# Each student: at most four running tasks, e.g. a notebook and three experiments. A limit on CPUs would count all CPUs of the node for a
# measurement, and refuse it. See the page for what one student can still take.
hostler --quiet configure group quota class --each --jobs 4 --queued 50

# put NAME OPTIONS: adds or changes a partition.
put() {
    if hostler --quiet configure partition show "$1" >/dev/null 2>&1; then
        hostler --quiet configure partition set "$@"
    else
        hostler --quiet configure partition add "$@"
    fi
}

# Experiments: several on a node, each in a sandbox. Jobs that name no partition come here. Nobody gets a whole node.
put lab --nodes "$workers" --sandbox always --exclusive never --max-time 30m --default yes
# Measurements: one at a time on a node, also in a sandbox. They have no priority, so that nobody keeps all nodes from experiments.
put measure --nodes "$workers" --sandbox always --exclusive always --max-time 10m
# Notebooks, on the user node only.
put notebooks --nodes "$user_nodes" --groups class,staff --exclusive never --max-time 4h

hostler --quiet configure setting default-memory 256M
hostler --quiet configure setting default-time-limit 10m
