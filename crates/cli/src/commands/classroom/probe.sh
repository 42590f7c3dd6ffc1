#!/bin/sh
# What the jobs of `hostler classroom check` do: probe.sh MODE ARGUMENTS
#
# Attempts print one line each: NAME kept, NAME broken WHAT, or NAME untried WHY.
umask 000

# A job that another student's job looks for. The marker is an argument of this process.
hold() {
    trap 'rm -f "$HOME/hostler-secret-$1" "/tmp/hostler-secret-$1" "/dev/shm/hostler-secret-$1" "/var/tmp/hostler-secret-$1"; exit' TERM
    for place in . /tmp "$HOME" /dev/shm; do
        { echo "$1" >"$place/hostler-secret-$1"; } 2>/dev/null || echo "unwritten $place"
    done
    # A sandbox has no /var/tmp.
    { echo "$1" >"/var/tmp/hostler-secret-$1"; } 2>/dev/null
    echo "home $HOME"
    echo "ready $PWD"
    while :; do sleep 1; done
}

# attempts MARKER FOLDER HOME HOST PORT: FOLDER and HOME are those of the other student's job, on the same node.
attempts() {
    marker=$1 folder=$2 home=$3 host=$4 port=$5

    seen=
    [ ! -r "$folder/hostler-secret-$marker" ] || seen="the folder of another student's job"
    [ "$(ls -A .. | wc -l)" -le 1 ] || seen="the folders of other jobs"
    for place in /home /root; do [ -z "$(ls -A $place 2>/dev/null)" ] || seen=$place; done
    told files "$seen"

    seen=
    for place in /tmp "$HOME" "$home" /dev/shm /var/tmp; do
        [ ! -e "$place/hostler-secret-$marker" ] || seen="a file of another student's job in $place"
    done
    told temporary "$seen"

    seen=
    for process in /proc/[0-9]*; do
        # This shell and its children have the marker too, but not behind `hold`.
        words=$(tr '\0' ' ' <"$process/cmdline" 2>/dev/null) || continue
        case $words in *"hold $marker"*) seen="process ${process#/proc/} of another student" ;; esac
    done
    told processes "$seen"

    seen=
    for place in /run/hostler /run/docker.sock /run/dbus; do [ ! -e $place ] || seen=$place; done
    told sockets "$seen"

    seen=
    for device in $(sed -n 's/^ *\([^ :]*\):.*/\1/p' /proc/net/dev); do [ "$device" = lo ] || seen="interface $device"; done
    if python3 -c "import socket; socket.create_connection(('$host', $port), 5)" 2>/dev/null; then seen="the head at $host:$port"; fi
    told network "$seen"

    seen=
    for place in / /usr /usr/local/bin /etc /var /home /root /opt /run ..; do
        if (: >"$place/hostler-$marker") 2>/dev/null; then
            rm -f "$place/hostler-$marker"
            seen="it could write to $place"
        fi
    done
    told writes "$seen"

    case $(counters) in
        refused) told counters "" ;;
        # The machine itself has no counters, but nothing kept the job from asking for them.
        works | none) told counters "perf_event_open is allowed" ;;
        *) echo "counters untried the node has no python3" ;;
    esac
}

# told NAME SEEN
told() { if [ -z "$2" ]; then echo "$1 kept"; else echo "$1 broken $2"; fi; }

# Counts the cycles of this process, without the kernel's, which ordinary users may do outside of sandboxes.
counters() {
    python3 - <<'END' 2>/dev/null
import ctypes, errno, platform, struct
attributes = bytearray(128)
attributes[0:16] = struct.pack("IIQ", 0, 128, 0)
attributes[40:48] = struct.pack("Q", 1 << 5 | 1 << 6)
number = 298 if platform.machine() == "x86_64" else 241
call = ctypes.CDLL(None, use_errno=True).syscall
found = call(number, (ctypes.c_char * 128).from_buffer(attributes), 0, -1, -1, 8)
refused = ctypes.get_errno() in (errno.EPERM, errno.EACCES, errno.ENOSYS)
print("works" if found > 2 else "refused" if refused else "none")
END
}

# More threads than a job may have processes and threads. They need less memory than processes, so that its limit does not come first.
bomb() {
    python3 - <<'END'
import _thread, os
_thread.stack_size(32768)
gate = _thread.allocate_lock()
gate.acquire()
for count in range(10000):
    try:
        _thread.start_new_thread(gate.acquire, ())
    except RuntimeError:
        print("refused at", count, flush=True)
        os._exit(0)
print("started all", flush=True)
os._exit(0)
END
}

case $1 in
    hold) hold "$2" ;;
    attempts) shift; attempts "$@" ;;
    # `tail` keeps 400 MB without a line break in memory.
    memory) head -c 400000000 /dev/zero | tail >/dev/null ;;
    bomb) bomb ;;
    time) while :; do sleep 1; done ;;
    # Ends with USR1.
    measure)
        trap exit USR1
        echo "cpus $HOSTLER_CPUS"
        echo "counters $(counters)"
        echo "ready $PWD"
        while :; do sleep 1; done
        ;;
    true) ;;
esac
