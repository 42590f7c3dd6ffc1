#!/usr/bin/env bash
# Tests a cluster in containers on a real Docker engine: test.sh PROGRAM SCRATCH
#
# PROGRAM is the `hostler` for the image, built for Debian 12. SCRATCH is a directory for images and downloads; downloads are reused by
# the next test. Needs root, docker.io, docker-compose and debootstrap. The test starts its own Docker engine and does not use the
# machine's engine. It creates the base image with debootstrap, so it needs no registry.
set -euo pipefail

program=$(realpath "$1")
scratch=$(realpath -m "$2")
here=$(dirname "$(realpath "$0")")
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}

export DOCKER_HOST=unix://$scratch/docker.sock COMPOSE_PROJECT_NAME=hostlertest HOSTLER_PORT=${HOSTLER_PORT:-17760}
compose_files=(--file "$here/compose.yaml")
daemon=

main() {
    mkdir -p "$scratch"
    start_engine
    make_base
    step "build the image" build_image
    step "four nodes join automatically" four_nodes_join
    step "a student's job runs on every node as the student" job_on_every_node
    step "a student's remote command runs on a node, even while the head is paused" commands_at_once
    step "without privileges, limits are shown as advisory" limits_are_advice
    step "all nodes reconnect to a restarted head" head_restarts
    step "a killed node reconnects under its name" node_killed
    step "add two nodes and remove them" scaled
    step "a student logs in from outside" login_from_outside
    step "with limits.yaml, the kernel enforces limits" limits_are_enforced
    step "the cluster stops in time and keeps its state over a restart" down_and_up
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
    compose ps >&2 || true
    compose logs --tail 30 >&2 || true
    exit 1
}

compose() { docker-compose "${compose_files[@]}" "$@" 2>>"$scratch/compose.log"; }
on_head() { compose exec -T head "$@"; }
# Runs a command on the first node as a student.
as_ada() { docker exec --user ada --workdir /home/ada --env HOME=/home/ada "$(container 1)" "$@"; }
container() { docker ps --all --quiet --filter "name=node[_-]$1\$"; }

# until_true SECONDS COMMAND…: waits until the command succeeds.
until_true() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || fail "timeout: this command did not succeed: $*"
        sleep 0.5
    done
}

# nodes_are NAME=STATE…: whether the cluster has exactly these nodes in these states.
nodes_are() {
    local found
    found=$(on_head hostler nodes --json 2>/dev/null | python3 -c '
import json, sys
print(*sorted(node["name"] + "=" + node["state"] for node in json.load(sys.stdin)))') || return 1
    [ "$found" = "$*" ]
}

four() { nodes_are node-1=up node-2=up node-3=up node-4=up; }

# exactly WANTED COMMAND…: fails unless the command succeeds and prints exactly WANTED.
exactly() {
    local wanted=$1 found
    shift
    found=$("$@") || fail "$* failed with exit code $? and printed: $found"
    [ "$found" = "$wanted" ] || fail "$* printed
$found
instead of
$wanted"
}

# says TEXT COMMAND…: fails unless the command prints the text. The command's exit code does not matter.
says() {
    local text=$1 found
    shift
    found=$("$@" 2>&1) || true
    case $found in *"$text"*) ;; *) fail "$* did not print \"$text\" but: $found" ;; esac
}

start_engine() {
    trap stop_engine EXIT
    dockerd --data-root "$scratch/engine" --exec-root "$scratch/exec" --pidfile "$scratch/docker.pid" --host "$DOCKER_HOST" \
        >"$scratch/docker.log" 2>&1 &
    daemon=$!
    until_engine() { docker version >/dev/null 2>&1; }
    local deadline=$((SECONDS + 60))
    until until_engine; do
        [ "$SECONDS" -lt "$deadline" ] || { tail -n 20 "$scratch/docker.log" >&2; exit 1; }
        sleep 0.5
    done
}

stop_engine() {
    compose down --volumes --timeout 2 >/dev/null 2>&1 || true
    kill "$daemon" && wait "$daemon" || true
}

make_base() {
    docker image inspect hostler-base >/dev/null 2>&1 && return
    echo "== create a base image with debootstrap" >&2
    rm -rf "$scratch/base"
    debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv,tini bookworm "$scratch/base" "$mirror" >"$scratch/base.log"
    tar --directory "$scratch/base" --exclude './var/cache/apt/archives/*.deb' --create . | docker import - hostler-base >/dev/null
    rm -rf "$scratch/base"
}

build_image() {
    local context=$scratch/context
    rm -rf "$context"
    mkdir -p "$context/packaging"
    cp -r "$here" "$context/packaging/docker"
    cp "$program" "$context/hostler"
    if test -x "$(dirname "$program")/hostler-tools"; then cp "$(dirname "$program")/hostler-tools" "$context/"; fi
    docker build --quiet --file "$here/Dockerfile" --build-arg BASE=hostler-base --build-arg BUILD_BASE=hostler-base \
        --tag hostler "$context" >/dev/null
    if test -x "$context/hostler-tools"; then
        exactly /usr/bin/hostler-tools docker run --rm --entrypoint readlink hostler:latest /usr/local/bin/dsh
    fi
}

four_nodes_join() {
    compose up --detach --no-build --scale node=4 || fail "compose: $(tail -n 5 "$scratch/compose.log")"
    until_true 60 four
    on_head cminfo
    until_true 60 all_healthy
}

all_healthy() { [ "$(docker ps --quiet --filter health=healthy | wc -l)" -eq 5 ]; }

job_on_every_node() {
    on_head hostler configure user add ada --uid 20001
    on_head hostler configure user add ben --uid 20002
    until_true 30 has_account 1
    until_true 30 has_account 4
    local expected=$'ada node-1\nada node-2\nada node-3\nada node-4'
    exactly "$expected" sorted as_ada hostler run --nodes 4 --memory 32M -- sh -c 'echo $(id -un) $HOSTLER_NODE'
    # All nodes share the home directory.
    as_ada hostler run --nodes 4 --memory 32M -- sh -c 'touch $HOSTLER_NODE.txt'
    exactly $'node-1.txt\nnode-2.txt\nnode-3.txt\nnode-4.txt' as_ada ls
    as_ada mkdir -p project
    printf 'print("from a project")\n' | docker exec --interactive --user ada "$(container 1)" tee /home/ada/project/main.py >/dev/null
    says "from a project" as_ada sh -c 'hostler logs -f $(hostler submit project main.py)'
}

sorted() { "$@" | sort; }
has_account() { docker exec "$(container "$1")" id ada >/dev/null 2>&1; }

commands_at_once() {
    until_true 30 knows_all
    exactly "ada node-3 /home/ada/project 42" as_ada sh -c \
        'cd project && echo 42 >left && hostler exec --node node-3 sh -c "echo \$(id -un) \$HOSTLER_NODE \$PWD \$(cat left)"'
    exactly $'node-1: node-1\nnode-2: node-2\nnode-3: node-3\nnode-4: node-4' \
        sorted as_ada sh -c 'hostler exec --all sh -c "echo \$HOSTLER_NODE" 2>/dev/null'
    docker pause "$(docker ps --quiet --filter name=head)" >/dev/null
    exactly $'node-2\n7' as_ada sh -c 'dsh --node node-2 sh -c "echo \$HOSTLER_NODE; exit 7"; echo $?'
    docker unpause "$(docker ps --quiet --filter name=head)" >/dev/null
    until_true 60 four
}

knows_all() { [ "$(as_ada hostler nodes --load --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)))')" -eq 4 ]; }

limits_are_advice() {
    says "memory 32M (advisory" as_ada hostler job 1
}

head_restarts() {
    local job
    job=$(as_ada hostler submit project main.py --name held --memory 32M)
    compose restart --timeout 10 head || fail "compose: $(tail -n 5 "$scratch/compose.log")"
    until_true 60 four
    exactly 0 sh -c "docker inspect --format '{{.State.ExitCode}}' $(docker ps --quiet --filter name=head)"
    as_ada hostler wait "$job"
}

node_killed() {
    # Kill one of the four nodes of a running job.
    local job
    job=$(as_ada hostler run --detach --nodes 4 --memory 32M -- sleep 600)
    until_true 30 says_state running "$job"
    docker kill "$(container 4)" >/dev/null
    until_true 60 nodes_are node-1=up node-2=up node-3=up node-4=down
    docker start "$(container 4)" >/dev/null
    until_true 60 four
    until_true 90 says_state node_fail "$job"
}

says_state() { as_ada hostler job "$2" --json | grep -q "\"state\":\"$1\""; }

scaled() {
    compose up --detach --no-build --scale node=6 || fail "compose: $(tail -n 5 "$scratch/compose.log")"
    until_true 60 nodes_are node-1=up node-2=up node-3=up node-4=up node-5=up node-6=up
    compose up --detach --no-build --scale node=4 || fail "compose: $(tail -n 5 "$scratch/compose.log")"
    until_true 60 nodes_are node-1=up node-2=up node-3=up node-4=up node-5=down node-6=down
    on_head hostler node remove --yes node-5 node-6
    four || fail "the cluster still lists the removed nodes"
}

login_from_outside() {
    local home=$scratch/outside
    rm -rf "$home"
    mkdir -p "$home/.ssh"
    ssh-keygen -q -t ed25519 -N '' -f "$home/.ssh/id_ed25519"
    on_head sh -c "cat >/tmp/ada.pub" <"$home/.ssh/id_ed25519.pub"
    on_head hostler configure user key add ada /tmp/ada.pub
    local authority
    authority=$(on_head hostler info --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["head"]["authority"])')
    # Without `HOSTLER_HEAD`, the program would prefer a cluster of this machine.
    outside() { env --chdir "$home" HOME="$home" XDG_CONFIG_HOME="$home/.config" HOSTLER_HEAD="localhost:$HOSTLER_PORT" "$program" "$@"; }
    outside login "localhost:$HOSTLER_PORT" --user ada --authority "$authority" --key "$home/.ssh/id_ed25519"
    mkdir "$home/project"
    echo 'open("answer.txt", "w").write("42")' >"$home/project/main.py"
    local job
    job=$(outside submit project main.py --memory 32M)
    outside wait "$job"
    outside fetch "$job"
    grep -rq 42 "$home" --include answer.txt || fail "the result was not fetched"
}

limits_are_enforced() {
    compose_files+=(--file "$here/limits.yaml")
    export HOSTLER_NODE_CPUS=1 HOSTLER_NODE_MEMORY=512M
    compose up --detach --no-build --scale node=4 || fail "compose: $(tail -n 5 "$scratch/compose.log")"
    until_true 60 four
    exactly $'1 536870912\n1 536870912\n1 536870912\n1 536870912' shares
    local job
    job=$(as_ada hostler run --detach --cpus 1 --memory 64M -- python3 -c 'b = bytearray(1 << 28)')
    until_true 30 says_state out_of_memory "$job"
    says "cpus 1 (enforced)" as_ada hostler job "$job"
    says "memory 64M (enforced)" as_ada hostler job "$job"
    exactly 137 as_ada sh -c 'dsh --node node-2 --memory 64M python3 -c "b = bytearray(1 << 28)" 2>/dev/null; echo $?'
    # The second node has CPU 1, if the machine has more than one CPU.
    exactly $(($(nproc) > 1)) as_ada hostler run --nodes 4 --memory 32M -- sh -c \
        '[ $HOSTLER_NODE != node-2 ] || grep Cpus_allowed_list /proc/self/status | cut -f 2'
}

shares() {
    on_head hostler nodes --json | python3 -c '
import json, sys
for node in json.load(sys.stdin): print(node["cpus"], node["memory_bytes"])'
}

down_and_up() {
    local begun=$SECONDS
    compose down --timeout 20 || fail "compose: $(tail -n 5 "$scratch/compose.log")"
    [ $((SECONDS - begun)) -lt 20 ] || fail "some container did not stop within 20 s"
    compose up --detach --no-build --scale node=4 || fail "compose: $(tail -n 5 "$scratch/compose.log")"
    until_true 90 four
    says completed as_ada hostler jobs --all
}

main
