#!/bin/sh
# Sets up the class on a new cluster: users, quotas, partitions and defaults. Run it as root on the head, again after each change:
#
#     setup.sh ROSTER [WORKERS] [USER-NODES]      e.g. setup.sh roster.csv 'lab*' 'user*'
#
# Without WORKERS or USER-NODES, existing partitions keep their nodes, and new ones get node-* and user-*.
set -eu

roster=$1 workers=${2-} user_nodes=${3-}

hostler --quiet configure user import "$roster"

# Each student: at most four running tasks, e.g. a notebook and three experiments. A limit on CPUs would count all CPUs of the node for a
# measurement, and refuse it. See the page for what one student can still take.
hostler --quiet configure group quota class --each --jobs 4 --queued 50

# put NAME NODES NEW-NODES OPTIONS: adds or changes a partition. Without NODES, an existing one keeps its nodes, and a new one gets
# NEW-NODES.
put() {
    name=$1 nodes=$2 new_nodes=$3
    shift 3
    if hostler --quiet configure partition show "$name" >/dev/null 2>&1; then
        hostler --quiet configure partition set "$name" ${nodes:+--nodes "$nodes"} "$@"
    else
        hostler --quiet configure partition add "$name" --nodes "${nodes:-$new_nodes}" "$@"
    fi
}

# Experiments: several on a node, each in a sandbox. Jobs that name no partition come here. Nobody gets a whole node.
put lab "$workers" 'node-*' --sandbox always --exclusive never --max-time 30m --default yes
# Measurements: one at a time on a node, also in a sandbox. They have no priority, so that nobody keeps all nodes from experiments.
put measure "$workers" 'node-*' --sandbox always --exclusive always --max-time 10m
# Notebooks, on the user node only.
put notebooks "$user_nodes" 'user-*' --groups class,staff --exclusive never --max-time 4h

hostler --quiet configure setting default-memory 256M
hostler --quiet configure setting default-time-limit 10m
