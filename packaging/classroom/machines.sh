#!/bin/sh
# A class in containers on several machines. Run it where the checkout and Docker are. It needs SSH to each machine as a user who may use
# Docker there.
#
#     machines.sh up FIRST [WORKER…]    head, user node and hub on the first machine, a worker on each of the others;
#                                       after an error, the same command continues
#     machines.sh add WORKER…           more workers
#     machines.sh remove WORKER…        waits until their jobs have ended
#     machines.sh update                after a change: builds the images again and replaces the containers, one worker after the other
#     machines.sh status                what runs where
#
# Machines are SSH destinations, e.g. root@lab1. The file `machines` beside this script lists them (CLASS_MACHINES names another file).
# HEAD_ADDRESS: how workers reach the first machine, by default as in its SSH destination. SSH: the command for `ssh`, with its options.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
source=$here/../..
list=${CLASS_MACHINES:-$here/machines}
port=${HOSTLER_PORT:-7760}
# Tells drains of `update` from those of an operator, which stay.
update_reason=update-by-machines.sh

say() { echo "machines.sh: $*" >&2; }
fail() {
    say "$*"
    exit 1
}

# on MACHINE COMMAND: runs a line of shell there, with this script's input.
on() { ${SSH:-ssh} -o BatchMode=yes "$1" "$2"; }
first() { head -n 1 "$list"; }
workers() { tail -n +2 "$list"; }
# The name of a machine's node: packaging/classroom/setup.sh expects node-*.
name_of() { echo "node-$(echo "${1#*@}" | tr .: --)"; }
address() {
    to=$(first)
    echo "${HEAD_ADDRESS:-${to#*@}}:$port"
}

compose() {
    on "$(first)" "cd hostler-class/packaging/docker && docker=docker-compose
        if docker compose version >/dev/null 2>&1; then docker='docker compose'; fi; \$docker $1"
}
in_head() { compose "exec -T head $1"; }

# row_of NAME: prints the state of a node and how many tasks it runs, or nothing if the head knows no such node. Fails if the head does not
# answer.
row_of() {
    # The notes about drained nodes on stderr would repeat.
    rows=$(in_head 'hostler nodes 2>/dev/null' </dev/null) || return
    echo "$rows" | awk -v name="$1" '
        NR == 1 { end = index($0, "TASKS") + 4 }
        $1 == name { state = $2; $0 = substr($0, 1, end); print state, $NF }'
}
# drain_of NAME: prints who drained a node and why, or nothing if nobody did. Fails if the head does not answer.
drain_of() {
    shown=$(in_head "hostler node show $1" </dev/null) || return
    echo "$shown" | sed -n 's/^drained  *//p'
}
head_failed() { fail "a command in the head's container on $(first) failed; mend that, then run the same command again"; }

check() {
    on "$1" 'docker version >/dev/null' </dev/null || fail "cannot use Docker on $1; try: ssh $1 docker version"
}

build() {
    docker build --file "$source/packaging/docker/Dockerfile" --tag hostler "$source"
    docker build --file "$source/packaging/classroom/worker.Dockerfile" --tag hostler-worker "$source"
    docker build --file "$source/packaging/classroom/Dockerfile" --tag hostler-jupyter "$source"
}

# ship MACHINE IMAGE…: copies images that the machine does not have, and the settings.
ship() {
    to=$1
    shift
    tar --directory "$source" --exclude .env --create packaging |
        on "$to" 'mkdir -p hostler-class && tar --directory hostler-class --extract'
    for image in "$@"; do
        id=$(docker image inspect --format '{{.Id}}' "$image") || fail "there is no image $image here; run: machines.sh update"
        [ "$(on "$to" "docker image inspect --format '{{.Id}}' $image 2>/dev/null || true" </dev/null)" = "$id" ] ||
            docker save "$image" | on "$to" 'docker load --quiet' >/dev/null
    done
}

start_first() {
    to=$(first)
    check "$to"
    ship "$to" hostler-jupyter hostler
    # A file that is there keeps what the teacher has changed.
    echo 'COMPOSE_FILE=compose.yaml:limits.yaml:../classroom/compose.yaml' |
        on "$to" 'cd hostler-class/packaging/docker && test -e .env || cat >.env'
    compose 'up --detach --no-build head user hub' </dev/null
    wait_until 120 "the head on $to does not answer; try: ssh $to docker logs docker-head-1" in_head 'hostler --quiet info >/dev/null'
}

# wait_until SECONDS MESSAGE COMMAND…
wait_until() {
    left=$1 message=$2
    shift 2
    until "$@" </dev/null 2>/dev/null; do
        [ "$left" -gt 0 ] || fail "$message"
        left=$((left - 1))
        sleep 1
    done
}
is_state() { row=$(row_of "$1") && [ "${row%% *}" = "$2" ]; }

start_worker() {
    worker=$1 name=$(name_of "$1")
    check "$worker"
    ship "$worker" hostler-worker
    row=$(row_of "$name") || head_failed
    # The volume holds the node's identity, which a node keeps until the head removes it.
    [ -n "$row" ] ||
        on "$worker" "docker rm --force $name >/dev/null 2>&1; docker volume rm --force $name >/dev/null" </dev/null
    volumes=$(on "$worker" 'docker volume ls --quiet' </dev/null) || fail "cannot list the volumes of $worker; run the same command again"
    if ! echo "$volumes" | grep -qxF -e "$name"; then
        in_head "hostler --quiet node invite $name --address $(address)" </dev/null |
            on "$worker" "docker run --rm --interactive --volume $name:/var/lib/hostler hostler-worker hostler agent join -" || {
            on "$worker" "docker volume rm --force $name >/dev/null" </dev/null
            fail "$worker cannot join; it must reach the head at $(address), or at the address in HEAD_ADDRESS"
        }
    fi
    on "$worker" "docker rm --force $name >/dev/null 2>&1 || true" </dev/null
    # Docker before version 23 may not know this capability, which hardware counters need.
    create worker.toml --cap-add PERFMON 2>/dev/null || {
        say "Docker on $worker cannot give the capability PERFMON, so jobs there get no hardware counters"
        create agent.toml
    }
    on "$worker" "docker start $name >/dev/null" </dev/null
    drain=''
    wanted=drained
    [ -z "$row" ] || drain=$(drain_of "$name") || head_failed
    case $drain in
        '') wanted=up ;;
        *": $update_reason")
            in_head "hostler --quiet node resume $name" </dev/null || head_failed
            wanted=up
            drain=''
            ;;
    esac
    wait_until 60 "node $name does not come up; try: ssh $worker docker logs $name" is_state "$name" "$wanted"
    say "$worker is node $name${drain:+, which stays drained $drain}"
}

# create SETTINGS [OPTION…]: makes the container of the node `name` on the machine `worker`.
create() {
    settings=$1
    shift
    on "$worker" "docker create --restart unless-stopped --name $name --hostname $name --cap-add SYS_ADMIN --cap-add NET_ADMIN $* \
        --security-opt apparmor=unconfined --security-opt seccomp=unconfined --security-opt systempaths=unconfined \
        --volume $name:/var/lib/hostler --volume hostler-course:/srv/course:ro \
        --volume \"\$PWD/hostler-class/packaging/classroom/$settings:/etc/hostler/agent.toml:ro\" hostler-worker node >/dev/null" </dev/null
}

add() {
    for machine in "$@"; do
        ! grep -qxF -e "$machine" "$list" || fail "$machine is in the class already"
        for other in $(workers); do
            [ "$(name_of "$other")" != "$(name_of "$machine")" ] || fail "$machine and $other would both be node $(name_of "$machine")"
        done
        start_worker "$machine"
        echo "$machine" >>"$list"
    done
}

# drain NAME REASON: waits until the node runs no task, or is not there. Does not touch a node that is drained already.
drain() {
    row=$(row_of "$1") || head_failed
    [ -n "$row" ] || return 0
    drain=$(drain_of "$1") || head_failed
    [ -n "$drain" ] || in_head "hostler --quiet node drain $1 --reason $2" </dev/null || head_failed
    say "waiting for the jobs of $1; after Ctrl-C, run the same command again"
    # A node that is silent keeps its tasks until the head gives them up.
    until is_idle "$1"; do sleep 2; done
}
is_idle() {
    row=$(row_of "$1") || { say "the head does not answer; trying again" && return 1; }
    case $row in
        '' | *' 0') ;;
        *) return 1 ;;
    esac
}

remove() {
    for machine in "$@"; do
        workers | grep -qxF -e "$machine" || fail "$machine is no worker of the class; see: machines.sh status"
        name=$(name_of "$machine")
        drain "$name" removal
        row=$(row_of "$name") || head_failed
        [ -z "$row" ] || in_head "hostler --quiet node remove --yes $name" </dev/null || head_failed
        on "$machine" "docker rm --force $name && docker volume rm $name" </dev/null >/dev/null ||
            say "cannot reach $machine: remove the container and the volume $name there by hand"
        grep -vxF -e "$machine" "$list" >"$list.new" || true
        mv "$list.new" "$list"
    done
}

update() {
    build
    start_first
    workers | while read -r machine; do
        # The node works while the image is copied. `start_worker` resumes it.
        check "$machine"
        ship "$machine" hostler-worker
        drain "$(name_of "$machine")" "$update_reason"
        start_worker "$machine"
    done
}

status() {
    {
        echo "MACHINE CONTAINER IMAGE STATUS"
        while read -r machine; do
            found=$(on "$machine" "docker ps --all --filter name=^docker[-_] --filter name=^node- \
                --format '{{.Names}} {{.Image}} {{.Status}}'" </dev/null) || found="- - unreachable"
            echo "$found" | sed "s/^/$machine /"
        done <"$list"
    } | awk '{ machine = $1; name = $2; image = $3; $1 = $2 = $3 = ""; printf "%-24s %-24s %-16s%s\n", machine, name, image, $0 }'
    in_head 'hostler nodes' </dev/null
}

command=${1-}
[ $# -eq 0 ] || shift
case $command in
    add | remove | update | status)
        [ -s "$list" ] || fail "there is no class yet: $list is missing; run: machines.sh up FIRST [WORKER…]"
        ;;
esac
for machine in "$@"; do
    case $machine in '' | -* | *[!A-Za-z0-9@._:-]*) fail "not an SSH destination: '$machine'" ;; esac
done
case $command:$# in
    up:0 | add:0 | remove:0) fail "$command: name a machine, e.g. root@lab1" ;;
    up:*)
        [ ! -s "$list" ] || [ "$(first)" = "$1" ] ||
            fail "$(first) is the first machine of the class; use add, or delete $list to start another class"
        check "$1"
        docker image inspect hostler-jupyter hostler-worker hostler >/dev/null 2>&1 || build
        [ -s "$list" ] || echo "$1" >"$list"
        shift
        start_first
        for machine in "$@"; do
            workers | grep -qxF -e "$machine" || add "$machine"
        done
        ;;
    add:*) add "$@" ;;
    remove:*) remove "$@" ;;
    update:0) update ;;
    status:0) status ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
