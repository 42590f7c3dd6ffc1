#!/usr/bin/env bash
# Tests the units on a machine with systemd and only control groups version 2: test.sh PROGRAM SCRATCH
#
# Boots Debian 12 in a virtual machine, sets it up like docs/guides/real-machines.md, and runs jobs there. PROGRAM is a `hostler` built
# for Debian 12 or older. SCRATCH is a directory for the disk image and for packages, which the next test reuses. Needs root,
# qemu-system-x86, debootstrap, openssh-client and 4 GB of disk. Without KVM, the machine is emulated, and the test takes about ten
# minutes instead of two.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=machines.sh
. "$(dirname "$(realpath "$0")")/machines.sh" "$@"

main() {
    mkdir -p "$scratch"
    make_base
    make_disk machine
    step "the machine starts" boot
    step "set up the cluster like the guide" set_up
    step "limits are enforced" limits_hold
    step "a fork bomb and a daemon cannot escape their job" wild_jobs_are_held
    step "limits apply to remote commands, too" commands_are_held
    step "jobs outlive their agent" agent_restarts
    step "a service is stopped while the machine must be quiet" units_are_stopped
    step "limits apply in a cluster of systemd's user manager" user_delegation
    step "the cluster continues after a reboot of the machine" reboot_machine
    echo "all tests passed"
}

boot() {
    start machine
    until_true 300 is_up
}

set_up() {
    says "cgroup2 on /sys/fs/cgroup " root mount
    root hostler head init
    root systemctl enable --now hostler-head
    until_true "$patience" root 'hostler info >/dev/null'
    root 'hostler node invite n1 | hostler agent join -'
    root systemctl enable --now hostler-agent
    until_true "$patience" node_is_up
    # The node enforces all limits.
    says '"advisory":{"cpus":null,"memory":null,"gpus":null,"users":null,' root hostler nodes --json
}

node_is_up() { root hostler nodes --json | grep -q '"state":"up"'; }

limits_hold() {
    says "hostler-jobs.service/hostler/" ada 'hostler run -c 1 -m 64M -- cat /proc/self/cgroup'
    says 1 ada 'hostler run -c 1 -m 64M -- nproc'
    ada 'hostler run -c 1 -m 64M --name disk -- dd if=/dev/zero of=x bs=1M count=8 conv=fsync'
    says "cpus 1 (enforced); memory 64M (enforced)" root hostler job 3
    says "8M written" root hostler job 3
    says "out_of_memory with exit code 137" ada 'hostler run -m 64M -- python3 -c "b = bytearray(1 << 28)" || hostler job 4'
}

# A job can have at most 4,096 processes, and fewer if its memory is too small.
wild_jobs_are_held() {
    local bomb daemon
    bomb=$(ada "hostler run --detach -m 64M -t 30s -- python3 -c '
import os
while True:
    try: os.fork()
    except OSError: pass
'")
    daemon=$(ada 'hostler run --detach -m 64M -- sh -c "setsid sleep 4321 & sleep 1"')
    until_true "$patience" is_state completed "$daemon"
    is_gone --full "^sleep 4321" || fail "a process outlived its job"
    until_true "$patience" is_over "$bomb"
    is_gone --euid ada --full fork || fail "processes of the fork bomb still run"
    node_is_up || fail "the node is not up after the fork bomb"
}

# is_gone OPTIONS…: fails unless pgrep runs and finds no process.
is_gone() { says "pgrep: 1" root "pgrep $(printf '%q ' "$@"); echo pgrep: \$?"; }

is_over() { root "hostler job $1 --json" | grep -qE '"state":"(timeout|out_of_memory|failed)"'; }

commands_are_held() {
    says "hostler-jobs.service/hostler/" ada 'dsh cat /proc/self/cgroup'
    says 137 ada 'dsh --memory 64M python3 -c "b = bytearray(1 << 28)"; echo $?'
    says "ended with 3" ada 'dsh sh -c "setsid sleep 4322 & exit 3"; echo ended with $?'
    is_gone --full "^sleep 4322" || fail "a process outlived the command that started it"
}

agent_restarts() {
    local job before
    job=$(ada 'hostler run --detach -m 64M -- sleep 5000')
    until_true "$patience" is_state running "$job"
    before=$(root 'pgrep --full "^sleep 5000"')
    # systemd could not restart the agent if jobs were below the agent's own group.
    root systemctl restart hostler-agent
    until_true "$patience" has_run "$job" 1
    root 'kill -KILL $(systemctl show --property MainPID --value hostler-agent)'
    until_true "$patience" has_run "$job" 1
    root systemctl restart hostler-head
    until_true "$patience" has_run "$job" 1
    [ "$(root 'pgrep --full "^sleep 5000"')" = "$before" ] || fail "the job is not the same process as before"
    root hostler cancel "$job"
    until_true "$patience" is_state cancelled "$job"
}

# has_run JOB ATTEMPT: whether the agent is active and the job runs with this attempt.
has_run() {
    root systemctl --quiet is-active hostler-agent && node_is_up && is_state running "$1" && root "hostler job $1 --json" | grep -q "\"attempt\":$2"
}

units_are_stopped() {
    local job
    root 'printf "[Service]\nExecStart=/usr/bin/sleep infinity\n" >/etc/systemd/system/disturber.service; systemctl daemon-reload'
    root systemctl start disturber
    root 'mkdir -p /etc/hostler'
    root 'printf "[quiet_machine]\nstop_units = [\"disturber.service\", \"absent.timer\"]\n" >>/etc/hostler/agent.toml'
    root systemctl restart hostler-agent
    until_true "$patience" node_is_up
    says inactive ada 'hostler run --exclusive --quiet-machine -- systemctl is-active disturber'
    says active root systemctl is-active disturber
    job=$(ada 'hostler run --detach --exclusive --quiet-machine -- sleep 5000')
    until_true "$patience" is_state running "$job"
    root 'kill -KILL $(systemctl show --property MainPID --value hostler-agent)'
    until_true "$patience" has_run "$job" 1
    says inactive root systemctl is-active disturber
    root hostler cancel "$job"
    until_true "$patience" root systemctl --quiet is-active disturber
    until_true "$patience" is_state cancelled "$job"
    says "partly: units" root hostler job "$job"
}

user_delegation() {
    root systemctl stop hostler-agent hostler-head hostler-jobs
    as bob systemd-run --quiet --user --scope -p Delegate=yes hostler up --nodes 2 --cpus 1 --memory 128M
    says '"memory":null' as bob hostler nodes --json
    says out_of_memory as bob 'hostler run -m 64M -- python3 -c "b = bytearray(1 << 28)" || hostler job 1'
    as bob hostler down
    root systemctl start hostler-head hostler-agent
    until_true "$patience" node_is_up
}

reboot_machine() {
    local lost again
    lost=$(ada 'hostler run --detach -m 64M -- sleep 5000')
    again=$(ada 'hostler run --detach --requeue -m 64M -- sleep 5000')
    until_true "$patience" is_state running "$lost"
    until_true "$patience" is_state running "$again"
    root systemctl reboot || true
    wait "${process[machine]}" || true
    boot
    until_true 300 node_is_up
    until_true "$patience" is_state node_fail "$lost"
    until_true "$patience" has_run "$again" 2
}

main
