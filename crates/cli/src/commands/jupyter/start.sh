#!/bin/sh
# Starts Jupyter on a Unix socket, in a directory that only its user can enter.
# Arguments: the directory, `lab` or `notebook`, and those of Jupyter.
directory=$1
app=$2
shift 2

fail() {
    printf 'hostler: %s on node %s\n' "$1" "$HOSTLER_NODE" >&2
    exit "$2"
}

# In a folder with requirements: to where the user works, if the node has that directory.
[ -z "$HOSTLER_JUPYTER_DIRECTORY" ] || cd -- "$HOSTLER_JUPYTER_DIRECTORY" 2>/dev/null
unset HOSTLER_JUPYTER_DIRECTORY

# The first number of the version of a Jupyter command; 0 if the command is missing.
version() {
    number=$(jupyter "$1" --version 2>/dev/null)
    number=${number%%.*}
    case $number in '' | *[!0-9]*) number=0 ;; esac
}

if ! command -v jupyter >/dev/null; then
    # shellcheck disable=SC2016
    printf 'hostler: %s\n' 'there are three ways to have Jupyter on the node:' \
        '- call `hostler jupyter` in a virtual environment with jupyterlab that the node has, too' \
        '- let the node build one: `hostler jupyter --requirements FILE`' \
        '- run only the kernel there, with Jupyter here: `python -m hostler.kernel add --requirements FILE`' >&2
    fail 'there is no `jupyter` in the PATH of the job' 127
fi
# Older servers do not know the options, and would listen on a port.
version server
[ "$number" -ge 2 ] || fail 'the package jupyter_server is missing or older than version 2' 127
oldest=3
[ "$app" = lab ] || oldest=7
version "$app"
[ "$number" -ge "$oldest" ] || fail "\`jupyter $app\` is missing or older than version $oldest" 127

# An earlier attempt of this job may have been killed.
rm -rf -- "$directory"
(umask 077 && mkdir -- "$directory" && printf %s "$HOSTLER_JUPYTER_TOKEN" >"$directory/token") ||
    fail "cannot create $directory" 1
trap 'rm -rf -- "$directory"' EXIT
# A signal that ends the job reaches Jupyter as well; the directory is removed after Jupyter has ended.
trap : HUP INT TERM
# Kernels inherit the variables, and notebooks may print them.
unset HOSTLER_JUPYTER_TOKEN JUPYTER_TOKEN JUPYTER_PORT
export JUPYTER_TOKEN_FILE="$directory/token"
# Settings of the user may say otherwise: a server refuses both a socket and another port than the default one, and the
# address of the page is that of a server without a prefix and a certificate.
# Other users of the node can read the messages of kernels on ports, so kernels that can encrypt them do.
jupyter "$app" --no-browser --ServerApp.port=8888 --ServerApp.sock="$directory/server.sock" \
    --ServerApp.base_url=/ --ServerApp.certfile= --ServerApp.keyfile= --KernelManager.transport_encryption=auto "$@"
exit $?
