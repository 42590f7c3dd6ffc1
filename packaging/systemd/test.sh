#!/usr/bin/env bash
# Tests the units on a machine with systemd and only control groups version 2: test.sh PROGRAM SCRATCH
#
# Boots Debian 12 in a virtual machine, sets it up like docs/guides/real-machines.md, and runs jobs there. PROGRAM is a `hostler` built
# for Debian 12 or older. SCRATCH is a directory for the disk image and for packages, which the next test reuses. Needs root,
# qemu-system-x86, debootstrap, openssh-client and 4 GB of disk. Without KVM, the machine is emulated, and the test takes about ten
# minutes instead of two.
set -euo pipefail

program=$(realpath "$1")
scratch=$(realpath -m "$2")
units=$(dirname "$(realpath "$0")")
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
port=${VM_SSH_PORT:-22022}
# Timeout in seconds for steps that are slow on an emulated machine.
patience=180

main() {
    mkdir -p "$scratch"
    make_base
    make_disk
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

step() {
    echo "== $1" >&2
    local begun=$SECONDS
    "$2"
    echo "   $((SECONDS - begun)) s" >&2
}

fail() {
    echo "FAILED: $*" >&2
    root 'hostler jobs --all; hostler nodes; journalctl --no-pager --lines 40 --unit "hostler-*"' >&2 || true
    exit 1
}

until_true() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || fail "timeout: this command did not succeed: $*"
        sleep 1
    done
}

# says TEXT COMMAND…: fails unless the command prints the text. The command's exit code does not matter.
says() {
    local text=$1 found
    shift
    found=$("$@" 2>&1) || true
    case $found in *"$text"*) ;; *) fail "$* did not print \"$text\" but: $found" ;; esac
}

as() {
    local user=$1
    shift
    ssh -q -i "$scratch/key" -p "$port" -o ConnectTimeout=10 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
        "$user@127.0.0.1" "$@" </dev/null
}
root() { as root "$@"; }
ada() { as ada "$@"; }
is_state() { root "hostler job $2 --json" | grep -q "\"state\":\"$1\""; }

make_base() {
    [ -e "$scratch/base/complete" ] && return
    echo "== create the system with debootstrap" >&2
    rm -rf "$scratch/base"
    debootstrap --variant=minbase \
        --include=systemd-sysv,dbus,dbus-user-session,libpam-systemd,openssh-server,linux-image-cloud-amd64,python3-minimal,iproute2,procps \
        bookworm "$scratch/base" "$mirror" >"$scratch/base.log"
    touch "$scratch/base/complete"
}

make_disk() {
    local system=$scratch/base
    install "$program" "$system/usr/bin/hostler"
    ln --symbolic --force ./hostler "$system/usr/bin/dsh"
    install --mode 644 "$units"/hostler-*.service "$system/etc/systemd/system/"
    echo machine >"$system/etc/hostname"
    echo "127.0.0.1 localhost machine" >"$system/etc/hosts"
    echo "/dev/vda / ext4 defaults 0 1" >"$system/etc/fstab"
    printf '[Match]\nName=en* eth*\n[Network]\nDHCP=yes\n' >"$system/etc/systemd/network/20.network"
    chroot "$system" systemctl enable systemd-networkd ssh >/dev/null 2>&1
    [ -e "$scratch/key" ] || ssh-keygen -q -t ed25519 -N '' -f "$scratch/key"
    local user home
    for user in ada bob; do
        chroot "$system" id "$user" >/dev/null 2>&1 || chroot "$system" useradd --create-home --shell /bin/bash "$user"
    done
    for user in root ada bob; do
        home=$(chroot "$system" getent passwd "$user" | cut --delimiter : --fields 6)
        chroot "$system" install --directory --mode 700 --owner "$user" --group "$user" "$home/.ssh"
        install --mode 644 "$scratch/key.pub" "$system$home/.ssh/authorized_keys"
    done
    rm -f "$scratch/disk"
    truncate --size 3G "$scratch/disk"
    mkfs.ext4 -q -d "$system" "$scratch/disk"
}

boot() {
    local accelerator=(-accel tcg,thread=multi -cpu max)
    # Other modules also provide /dev/kvm, but an ordinary kernel does not run with them.
    if [ -w /dev/kvm ] && { [ -e /sys/module/kvm_intel ] || [ -e /sys/module/kvm_amd ]; }; then
        accelerator=(-accel kvm -cpu host)
    fi
    trap power_off EXIT
    qemu-system-x86_64 "${accelerator[@]}" -smp 2 -m 1536 -nographic -no-reboot \
        -kernel "$scratch"/base/boot/vmlinuz-* -initrd "$scratch"/base/boot/initrd.img-* -append "root=/dev/vda rw console=ttyS0 quiet" \
        -drive "file=$scratch/disk,if=virtio,format=raw,cache=unsafe" -device virtio-rng-pci \
        -netdev "user,id=net,hostfwd=tcp:127.0.0.1:$port-:22" -device virtio-net-pci,netdev=net \
        </dev/null >"$scratch/console" 2>&1 &
    machine=$!
    until_true 300 is_up
}

is_up() { kill -0 "$machine" && root true; }
power_off() { kill "$machine" 2>/dev/null && wait "$machine" || true; }

set_up() {
    says "cgroup2 on /sys/fs/cgroup " root mount
    root hostler head init
    root systemctl enable --now hostler-head
    until_true "$patience" root 'hostler info >/dev/null'
    root 'hostler node invite n1 | hostler agent join -'
    root systemctl enable --now hostler-agent
    until_true "$patience" node_is_up
    # The node enforces all limits.
    says '"advisory":{"cpus":null,"memory":null,"gpus":null,"users":null}' root hostler nodes --json
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
    wait "$machine" || true
    boot
    until_true 300 node_is_up
    until_true "$patience" is_state node_fail "$lost"
    until_true "$patience" has_run "$again" 2
}

main
