#!/usr/bin/env bash
# Tests a cluster whose machines share /home by NFS: nfs.sh PROGRAM SCRATCH
#
# Boots three virtual machines and sets them up like docs/guides/nfs.md: `head` is also the file server, `n1` and `n2` mount its /home.
# Arguments and needs are those of test.sh, whose packages it reuses. Without KVM, it takes about ten minutes.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=machines.sh
. "$(dirname "$(realpath "$0")")/machines.sh" "$@"

lan=${VM_LAN_PORT:-22020}

main() {
    mkdir -p "$scratch"
    make_base
    step "three machines start" boot
    step "set up the server and the cluster like the guide" set_up
    step "jobs run in a home that root of the node may not enter" private_homes
    step "commands see what another machine has just written" no_stale_files
    step "sandboxed jobs run in such a home" sandboxes
    step "while the server hangs, the node works and its jobs can be cancelled" server_hangs
    step "when the server answers again, everything works" server_returns
    echo "all tests passed"
}

boot() {
    local number=1
    make_disk head n1 n2
    for at in head n1 n2; do
        start "$at" -netdev "socket,id=lan,mcast=230.0.0.1:$lan,localaddr=127.0.0.1" \
            -device "virtio-net-pci,netdev=lan,mac=52:54:00:00:03:0$number"
        number=$((number + 1))
    done
    for at in head n1 n2; do until_true 300 is_up; done
}

set_up() {
    at="head"
    root 'chmod 700 /home/ada /home/bob'
    root 'echo "/home 10.0.3.0/24(rw,sync,no_subtree_check)" >/etc/exports'
    root 'echo "fs.leases-enable = 0" >/etc/sysctl.d/nfs-server.conf; sysctl --quiet --system'
    root systemctl enable --now nfs-server
    root hostler head init --advertise head
    root systemctl enable --now hostler-head
    until_true "$patience" root 'hostler info >/dev/null'
    local node
    for node in n1 n2; do
        on "$node" root 'echo "head:/home /home nfs4 hard,nosuid,nodev,_netdev 0 0" >>/etc/fstab; systemctl daemon-reload; mount /home'
        on "$node" root 'mkdir /etc/systemd/system/hostler-agent.service.d'
        on "$node" root 'printf "[Unit]\nRequiresMountsFor=/home\n" >/etc/systemd/system/hostler-agent.service.d/home.conf'
        root "hostler node invite $node" >"$scratch/code"
        as_is "$node" 'hostler agent join -' <"$scratch/code"
        on "$node" root 'systemctl daemon-reload; systemctl enable --now hostler-agent'
    done
    rm "$scratch/code"
    until_true "$patience" nodes_are up up
    until_true "$patience" on n1 root 'hostler nodes --load | grep -q "^n2 *live"'
    until_true "$patience" on n2 root 'hostler nodes --load | grep -q "^n1 *live"'
}

# as_is MACHINE COMMAND: runs a command of root with this script's standard input.
as_is() {
    ssh -q -i "$scratch/key" -p "${ports[$1]}" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null root@127.0.0.1 "$2"
}

# nodes_are STATE…: whether n1 and n2 have these states.
nodes_are() {
    [ "$(root hostler nodes --json | grep -o '"name":"n.","state":"[a-z]*"\|"state":"[a-z]*"' | sed 's/.*:"//; s/"//' | xargs)" = "$*" ]
}

private_homes() {
    says "Permission denied" on n1 root ls /home/ada
    says "one on n1" ada 'mkdir work; cd work; echo one >in; hostler run --constraint n1 -m 64M -- sh -c "echo \$(cat in) on \$HOSTLER_NODE | tee out"'
    says "one on n1" ada cat work/out
    ada 'mkdir project; cd project; echo "open(\"result\", \"w\").write(\"42\")" >main.py; hostler submit . main.py --constraint n1 --follow'
    says 42 ada 'cat project/*/result'
    # The home of a new user, which the node may not make.
    says "drwx------" ada 'ls -ld ~'
}

# Without Hostler, a client that missed a file keeps missing it for up to 30 seconds.
no_stale_files() {
    on n1 ada 'cd work; mkdir sub; echo 1 >sub/short; echo "cat sub/new; stat -c %s sub/short" >look.sh'
    # NFS caches a directory longer if it was not changed recently.
    sleep 35
    says "No such file" on n1 ada 'cd work; sh look.sh'
    says $'text\n4' on n2 ada 'cd work; echo text >sub/new; echo 123 >sub/short; dsh --node n1 sh look.sh'
    on n2 ada 'cd work; rm sub/new'
    says "No such file" on n1 ada 'cd work; sh look.sh'
    says $'more\n6' on n1 ada 'cd work; dsh --node n2 sh -c "echo more >sub/new; echo 12345 >sub/short"; sh look.sh'
}

sandboxes() {
    says "one on n1" ada 'cd work; hostler run --constraint n1 --sandbox -m 64M -- sh -c "echo \$(cat in) on \$HOSTLER_NODE | tee boxed"'
    says "one on n1" ada cat work/boxed
    # Other homes are not there.
    says $'ada\n' ada 'cd work; hostler run --constraint n1 --sandbox -m 64M -- ls /home; echo'
}

# Drops what the node n1 sends to the server.
hang() {
    root 'nft add table inet hang; nft add chain inet hang in "{ type filter hook input priority 0; }"'
    root 'nft add rule inet hang in ip saddr 10.0.3.2 tcp dport 2049 drop'
}

server_hangs() {
    local running starting boxed limited
    ada 'cd work; for file in a b c d; do echo $file >$file; done'
    running=$(ada 'cd work; hostler run --detach --constraint n1 -m 64M -- sh -c "until [ -e go ]; do sleep 1; done; cat a"')
    until_true "$patience" is_state running "$running"
    hang
    starting=$(ada 'cd work; hostler run --detach --constraint n1 -m 64M -- cat b')
    boxed=$(ada 'cd work; hostler run --detach --constraint n1 --sandbox -m 64M -- cat c')
    limited=$(ada 'cd work; hostler run --detach --constraint n1 -m 64M -t 10s -- cat d')
    sleep 60
    nodes_are up up || fail "the node is not up"
    # Others' jobs run, also while more jobs hang than the node has CPUs.
    says n1 as bob 'cd /tmp; hostler run --constraint n1 -c 1 -m 64M -- hostname'
    says n1 on n2 as bob 'cd /tmp; dsh --node n1 -C / hostname'
    root hostler cancel "$running" "$starting" "$boxed"
    local job
    for job in "$running" "$starting" "$boxed"; do until_true 60 is_state cancelled "$job"; done
    until_true 60 is_state timeout "$limited"
}

server_returns() {
    root nft delete table inet hang
    until_true "$patience" on n1 root 'ls /home >/dev/null'
    says "one on n1" ada 'cd work; hostler run --constraint n1 -m 64M -- sh -c "echo \$(cat in) on \$HOSTLER_NODE"'
    says "" on n1 root 'pgrep --uid ada || true'
}

main
