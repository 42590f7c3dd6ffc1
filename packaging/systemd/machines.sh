# Debian 12 in virtual machines, for test.sh and nfs.sh, which read this file with their arguments: PROGRAM SCRATCH
# shellcheck shell=bash

program=$(realpath "$1")
scratch=$(realpath -m "$2")
units=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
# SSH port of the first machine on the host; the second machine has the next port.
port=${VM_SSH_PORT:-22022}
# Timeout in seconds for steps that are slow on an emulated machine.
patience=180
packages=systemd-sysv,dbus,dbus-user-session,libpam-systemd,openssh-server,linux-image-cloud-amd64,python3-minimal,iproute2,procps
packages+=,nfs-kernel-server,nfs-common,nftables

# Process and SSH port of each machine that runs.
declare -A process=() ports=()
# The machine on which `root` and `ada` run commands.
at=machine

step() {
    echo "== $1" >&2
    local begun=$SECONDS
    "$2"
    echo "   $((SECONDS - begun)) s" >&2
}

fail() {
    echo "FAILED: $*" >&2
    local at
    for at in "${!process[@]}"; do
        echo "-- $at" >&2
        root 'timeout 20 hostler jobs --all; timeout 20 hostler nodes; journalctl --no-pager --lines 40 --unit "hostler-*"' >&2 || true
    done
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
    ssh -q -i "$scratch/key" -p "${ports[$at]}" -o ConnectTimeout=10 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
        "$user@127.0.0.1" "$@" </dev/null
}
root() { as root "$@"; }
ada() { as ada "$@"; }
# on MACHINE COMMAND…: runs one of the functions above on this machine.
on() {
    local at=$1
    shift
    "$@"
}
is_state() { root "hostler job $2 --json" | grep -q "\"state\":\"$1\""; }

make_base() {
    [ "$(cat "$scratch/base/complete" 2>/dev/null)" = "$packages" ] && return
    echo "== create the system with debootstrap" >&2
    rm -rf "$scratch/base"
    debootstrap --variant=minbase --include="$packages" bookworm "$scratch/base" "$mirror" >"$scratch/base.log"
    # Only the NFS test starts the server.
    chroot "$scratch/base" systemctl disable nfs-server >/dev/null 2>&1
    echo "$packages" >"$scratch/base/complete"
}

# make_disk MACHINE…: makes equal disks for these machines.
make_disk() {
    local system=$scratch/base
    install "$program" "$system/usr/bin/hostler"
    ln --symbolic --force ./hostler "$system/usr/bin/dsh"
    install --mode 644 "$units"/hostler-*.service "$system/etc/systemd/system/"
    printf '127.0.0.1 localhost machine\n10.0.3.1 head\n10.0.3.2 n1\n10.0.3.3 n2\n' >"$system/etc/hosts"
    echo "/dev/vda / ext4 defaults 0 1" >"$system/etc/fstab"
    printf '[Match]\nName=en* eth*\n[Network]\nDHCP=yes\n' >"$system/etc/systemd/network/20.network"
    # The network between machines.
    local number
    for number in 1 2 3; do
        printf '[Match]\nMACAddress=52:54:00:00:03:0%s\n[Network]\nAddress=10.0.3.%s/24\n' "$number" "$number" \
            >"$system/etc/systemd/network/10-$number.network"
    done
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
    local first=$scratch/$1.disk machine
    rm -f "$first"
    truncate --size 3G "$first"
    mkfs.ext4 -q -d "$system" "$first"
    for machine in "${@:2}"; do cp --sparse=always "$first" "$scratch/$machine.disk"; done
}

# start MACHINE [OPTION…]: starts a machine with these options of qemu.
start() {
    local at=$1 accelerator=(-accel "tcg,thread=multi" -cpu max)
    shift
    # Other modules also provide /dev/kvm, but an ordinary kernel does not run with them.
    if [ -w /dev/kvm ] && { [ -e /sys/module/kvm_intel ] || [ -e /sys/module/kvm_amd ]; }; then
        accelerator=(-accel kvm -cpu host)
    fi
    trap power_off EXIT
    [ -n "${ports[$at]:-}" ] || ports[$at]=$((port + ${#ports[@]}))
    qemu-system-x86_64 "${accelerator[@]}" -smp 2 -m 1536 -nographic -no-reboot \
        -kernel "$scratch"/base/boot/vmlinuz-* -initrd "$scratch"/base/boot/initrd.img-* \
        -append "root=/dev/vda rw console=ttyS0 quiet systemd.hostname=$at" \
        -drive "file=$scratch/$at.disk,if=virtio,format=raw,cache=unsafe" -device virtio-rng-pci \
        -netdev "user,id=net,hostfwd=tcp:127.0.0.1:${ports[$at]}-:22" -device virtio-net-pci,netdev=net "$@" \
        </dev/null >"$scratch/$at.console" 2>&1 &
    process[$at]=$!
}

is_up() { kill -0 "${process[$at]}" && root true; }
power_off() {
    kill "${process[@]}" 2>/dev/null || true
    wait
}
