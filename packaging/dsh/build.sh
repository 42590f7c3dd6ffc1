#!/bin/bash
# Measures a build by `make` alone, with `dsh` and with distcc, on machines with a limited CPU. Needs root and control groups.
#
#   packaging/dsh/build.sh PROGRAM SOURCE MACHINES PERCENT [TARGET…]
#
# PROGRAM is a release build of `hostler`, with `hostler-tools` beside it. SOURCE is a configured C program, e.g. a Linux kernel
# after `make tinyconfig`. Each machine is a set of namespaces on this one: it has its own address, /etc, /run and state, PERCENT
# of a CPU, its own load (as lxcfs would show it), and the same disk for the source. The head has a machine of its own, without a limit. TARGETs are those of `make`. Prints
# a table in Markdown.
set -euo pipefail

program=$(realpath "$1")
source=$(realpath "$2")
machines=$3
percent=$4
targets=("${@:5}")
scratch=$(mktemp -d /tmp/hbXXXX)
tag=$(basename "$scratch")
tree="$scratch/tree"
# The first process of each machine.
pids=()

# Runs a command on a machine: `on 0 COMMAND…` on the head's.
on() {
    nsenter -t "${pids[$1]}" --net --mount --uts -- env -i HOME=/root PATH="$scratch/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
        ${DISTCC_HOSTS:+DISTCC_HOSTS="$DISTCC_HOSTS"} "${@:2}"
}

# Runs a command on a machine, within its share of the CPU.
within() {
    # shellcheck disable=SC2016
    on "$1" sh -c 'for group in '"$scratch/cpu$1/"*'; do echo $$ > "$group"; done; exec "$@"' sh "${@:2}"
}

clean_up() {
    local try
    for try in 1 2 3 4 5; do
        {
            find /sys/fs/cgroup -path "*/$tag.*" -name cgroup.procs -exec cat {} + 2> /dev/null
            printf '%s\n' "${pids[@]}"
        } | xargs kill -KILL 2> /dev/null || true
        sleep "0.$try"
        find /sys/fs/cgroup -depth -type d -path "*/$tag.*" -exec rmdir {} + 2> /dev/null && break
    done
    ip link delete "$tag" 2> /dev/null || true
    rm -rf "$scratch"
}
trap clean_up EXIT
trap exit INT TERM

# Waits up to a minute until a command succeeds.
wait_until() {
    local end=$((SECONDS + 60))
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || { echo "waited in vain: $*" >&2; exit 1; }
        sleep 0.2
    done
}

all_live() {
    [ "$(on 1 hostler nodes --load 2> /dev/null | grep -c '^n[0-9]')" = "$machines" ]
}

head_answers() {
    on 0 hostler info > /dev/null 2>&1
}

# Starts machine $1: an address, private directories, and a control group with a part of a CPU.
start() {
    local own="$scratch/n$1"
    mkdir -p "$own" "$scratch/cpu$1"
    # shellcheck disable=SC2016
    unshare --net --mount --uts sh -ec '
        hostname "$1"; ip link set lo up
        mount --make-rprivate /
        for of in etc var/lib; do
            at=$2/$of; mkdir -p "$at/upper" "$at/work"
            mount -t overlay overlay -o "lowerdir=/$of,upperdir=$at/upper,workdir=$at/work" "/$of"
        done
        mount -t tmpfs tmpfs /run
        for file in stat loadavg pressure/cpu pressure/memory pressure/io; do
            mkdir -p "$2/proc/pressure"; : > "$2/proc/$file"
            mount --bind "$2/proc/$file" "/proc/$file"
        done
        : > "$2/ready"; exec sleep infinity' sh "n$1" "$own" &
    pids[$1]=$!
    wait_until test -e "$own/ready"
    ip link add "$tag.$1" type veth peer name e0 netns "${pids[$1]}"
    ip link set "$tag.$1" master "$tag" up
    on "$1" ip address add "10.77.0.$((100 + $1))/24" dev e0
    on "$1" ip link set e0 up
    local group="$tag.$1" share=-1
    [ "$1" = 0 ] || share=$((percent * 100))
    if [ -d /sys/fs/cgroup/cpuacct ]; then
        mkdir -p /sys/fs/cgroup/{cpu,cpuacct}/"$group"
        echo 10000 > "/sys/fs/cgroup/cpu/$group/cpu.cfs_period_us"
        echo "$share" > "/sys/fs/cgroup/cpu/$group/cpu.cfs_quota_us"
        ln -s "/sys/fs/cgroup/cpu/$group/cgroup.procs" "$scratch/cpu$1/cpu"
        ln -s "/sys/fs/cgroup/cpuacct/$group/cgroup.procs" "$scratch/cpu$1/cpuacct"
    else
        mkdir "/sys/fs/cgroup/$group"
        echo "${share/#-1/max} 10000" > "/sys/fs/cgroup/$group/cpu.max"
        ln -s "/sys/fs/cgroup/$group/cgroup.procs" "$scratch/cpu$1/all"
    fi
}

# Shows each machine its own load, from its control group: its share of a CPU is its only CPU.
show_loads() {
    python3 - "$tag" "$scratch" "$machines" "$percent" << 'END' &
import math, os, sys, time

tag, scratch, machines, percent = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
is_v1 = os.path.isdir("/sys/fs/cgroup/cpuacct")
loads, begun, last = {}, time.monotonic(), time.monotonic()


def read(path):
    with open(path) as file:
        return file.read()


def used(group):
    """CPU time in seconds."""
    if is_v1:
        return int(read(f"/sys/fs/cgroup/cpuacct/{group}/cpuacct.usage")) / 1e9
    return int(read(f"/sys/fs/cgroup/{group}/cpu.stat").split()[1]) / 1e6


def runnable(group):
    count = 0
    for place, _, _ in os.walk(f"/sys/fs/cgroup/{'cpu/' * is_v1}{group}"):
        for pid in read(f"{place}/cgroup.procs").split():
            try:
                count += read(f"/proc/{pid}/stat").rsplit(") ", 1)[1][0] == "R"
            except OSError:
                pass
    return count


def write(path, text):
    file = os.open(path, os.O_WRONLY)
    os.pwrite(file, text.ljust(300, "\n").encode(), 0)
    os.close(file)


while True:
    now = time.monotonic()
    for number in range(1, machines + 1):
        busy = int(used(f"{tag}.{number}") / percent * 1e4)
        idle = max(int((now - begun) * 100) - busy, 0)
        count = runnable(f"{tag}.{number}")
        weight = math.exp((last - now) / 60)
        loads[number] = loads.get(number, 0) * weight + count * (1 - weight)
        write(f"{scratch}/n{number}/proc/stat", f"cpu {busy} 0 0 {idle}\ncpu0 {busy} 0 0 {idle}\nprocs_running {count + 1}\n")
        write(f"{scratch}/n{number}/proc/loadavg", f"{loads[number]:.2f} 0 0 {count}/99 1\n")
    last = now
    time.sleep(0.5)
END
    pids+=($!)
    disown
}

# CPU time of the first machine, in hundredths of a second.
used() {
    local at="/sys/fs/cgroup/cpuacct/$tag.1/cpuacct.usage"
    if [ -e "$at" ]; then
        echo $(($(cat "$at") / 10000000))
    else
        awk '$1 == "usage_usec" { print int($2 / 10000) }' "/sys/fs/cgroup/$tag.1/cpu.stat"
    fi
}

# Builds from scratch, and prints a row of the table: build NAME JOBS COMPILER.
build() {
    local begun used seconds
    on 1 make -s -C "$tree" clean
    sync
    used=$(used)
    begun=$(date +%s%N)
    within 1 make -s -C "$tree" "-j$2" "CC=$3" HOSTCC=gcc "${targets[@]}" > "$scratch/make.log" 2>&1 || {
        tail -20 "$scratch/make.log" >&2
        return 1
    }
    seconds=$((($(date +%s%N) - begun) / 10000000))
    first=${first:-$seconds}
    used=$(($(used) - used))
    # shellcheck disable=SC2016
    printf '| `%s` | %d.%d | %d.%02d | %d.%d |\n' "$1" $((seconds / 100)) $((seconds / 10 % 10)) \
        $((first / seconds)) $((first * 100 / seconds % 100)) $((used / 100)) $((used / 10 % 10))
}

cp -r "$source" "$tree"
mkdir "$scratch/bin"
ln -s "$program" "$scratch/bin/hostler"
ln -s "$(dirname "$program")/hostler-tools" "$scratch/bin/dsh"
ip link add "$tag" type bridge
ip link set "$tag" up
for number in $(seq 0 "$machines"); do start "$number"; done
show_loads
on 0 hostler head init --advertise 10.77.0.100 > /dev/null 2>&1
within 0 hostler head run > "$scratch/head.log" 2>&1 &
wait_until head_answers
for number in $(seq 1 "$machines"); do
    on 0 hostler node invite "n$number" 2> /dev/null | on "$number" hostler agent join - > /dev/null 2>&1
    within "$number" hostler agent run --root-jobs > "$scratch/agent$number.log" 2>&1 &
    if command -v distccd > /dev/null; then
        within "$number" distccd --no-detach --daemon --allow 10.77.0.0/24 --jobs 4 --log-level error \
            --log-file "$scratch/distccd$number.log" 2> /dev/null &
        distcc_hosts+=" 10.77.0.$((100 + number))/2"
    fi
done
wait_until all_live

echo "$machines machines with $percent % of a CPU each"
echo
echo '| command | seconds | speed-up | CPU seconds of the first machine |'
echo '| --- | --- | --- | --- |'
for jobs in 1 2; do build "make -j$jobs" "$jobs" gcc; done
for jobs in 2 4 8 16; do build "make -j$jobs CC='dsh gcc'" "$jobs" 'dsh gcc'; done
if [ -n "${distcc_hosts:-}" ]; then
    # The first machine is reached without a daemon.
    export DISTCC_HOSTS="localhost/2${distcc_hosts# 10.77.0.101/2}"
    for jobs in 4 8; do build "make -j$jobs CC='distcc gcc'" "$jobs" 'distcc gcc'; done
fi
