#!/usr/bin/env bash
# Tests a cluster whose machines share /home by NFS: nfs.sh PROGRAM SCRATCH
#
# Boots three virtual machines and sets them up like docs/guides/nfs.md: `head` is also the file server, `n1` and `n2` mount its /home.
# Arguments and needs are those of test.sh, whose packages it reuses. Without KVM, it takes about ten minutes.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=machines.sh
. "$(dirname "$(realpath "$0")")/machines.sh" "$@"

lan=${VM_LAN_PORT:-22020}
on_n1="hostler run --constraint n1 -m 64M"

main() {
    mkdir -p "$scratch"
    make_base
    step "three machines start" boot
    step "set up the server and the cluster like the guide" set_up
    step "jobs run in a home that root of the node may not enter" private_homes
    step "a new user has a home and runs a job" new_user
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
    root 'hostler node invite files | hostler agent join -'
    root 'printf "accounts = true\nhomes = true\n" >/etc/hostler/agent.toml; systemctl enable --now hostler-agent'
    local node
    for node in n1 n2; do
        on "$node" root 'echo "head:/home /home nfs4 hard,nosuid,nodev,_netdev 0 0" >>/etc/fstab; systemctl daemon-reload; mount /home'
        on "$node" root 'mkdir /etc/systemd/system/hostler-agent.service.d'
        on "$node" root 'printf "[Unit]\nRequiresMountsFor=/home\n" >/etc/systemd/system/hostler-agent.service.d/home.conf'
        root "hostler node invite $node" >"$scratch/code"
        as_is "$node" 'hostler agent join -' <"$scratch/code"
        on "$node" root 'echo "accounts = true" >/etc/hostler/agent.toml'
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
    [ "$(root hostler nodes | awk '$1 ~ /^n[12]/ { print $2 }' | xargs)" = "$*" ]
}

private_homes() {
    says "Permission denied" on n1 root ls /home/ada
    ada 'mkdir work; echo one >work/in'
    says "one on n1" ada "cd work; $on_n1 -- sh -c 'echo \$(cat in) on \$HOSTLER_NODE | tee out'"
    says "one on n1" ada cat work/out
    ada 'mkdir project; echo "open(\"result\", \"w\").write(\"42\")" >project/main.py'
    ada 'cd project; hostler submit . main.py --constraint n1 --follow'
    says 42 ada 'cat project/*/result'
}

# The server's agent makes the home of a new user, and the other agents only the account.
new_user() {
    root hostler configure user add cleo
    until_true "$patience" root 'test -d /home/cleo'
    until_true "$patience" on n1 root 'id cleo'
    says "cleo on n1" root "runuser -l cleo -c 'mkdir w; cd w; $on_n1 -- sh -c \"echo \\\$(id -un) on \\\$HOSTLER_NODE\"'"
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
    says "one on n1" ada "cd work; $on_n1 --sandbox -- sh -c 'echo \$(cat in) on \$HOSTLER_NODE | tee boxed'"
    says "one on n1" ada cat work/boxed
    # Other homes are not there.
    [ "$(ada "cd work; $on_n1 --sandbox -- ls /home")" = ada ] || fail "a sandboxed job sees other homes"
}

# Drops what the node n1 sends to the server.
hang() {
    root 'nft add table inet hang; nft add chain inet hang in "{ type filter hook input priority 0; }"'
    root 'nft add rule inet hang in ip saddr 10.0.3.2 tcp dport 2049 drop'
}

# One job after the other hangs, since each keeps one of the two CPUs of the node.
server_hangs() {
    local job
    ada 'cd work; for file in a b c d; do echo $file >$file; done'
    job=$(ada "cd work; $on_n1 --detach -- sh -c 'until [ -e go ]; do sleep 1; done; cat a'")
    until_true "$patience" is_state running "$job"
    hang
    sleep 60
    cancel_hanging "$job"
    cancel_hanging "$(ada "cd work; $on_n1 --detach -- cat b")"
    cancel_hanging "$(ada "cd work; $on_n1 --detach --sandbox -- cat c")"
    job=$(ada "cd work; $on_n1 --detach -t 10s -- cat d")
    until_true 60 is_state timeout "$job"
    says "a file system that it needs does not answer" root hostler job "$job"
    others_work
    on n1 root systemctl restart hostler-agent
    until_true "$patience" on n1 root 'hostler info >/dev/null'
    others_work
}

# cancel_hanging JOB: checks that others work while a job hangs, then cancels it.
cancel_hanging() {
    sleep 5
    others_work
    root hostler cancel "$1"
    until_true 60 is_state cancelled "$1"
}

# The node and the head answer, and jobs and commands that do not need the server run on the node.
others_work() {
    nodes_are up up || fail "a node is not up"
    says n1 as bob "cd /tmp; timeout 60 $on_n1 -- hostname"
    says n1 on n2 as bob 'cd /; timeout 60 dsh --node n1 -C / hostname'
}

server_returns() {
    root nft delete table inet hang
    until_true "$patience" on n1 root 'ls /home >/dev/null'
    says "one on n1" ada "cd work; $on_n1 -- sh -c 'echo \$(cat in) on \$HOSTLER_NODE'"
    until_true 60 on n1 root '! pgrep --uid ada'
}

main
