#!/bin/sh
# Writes requirements.txt: the Python packages of the class's image, with the hashes of their files for Debian's Python 3.11 on x86-64 and
# ARM. pip refuses other files. Run it to take newer versions; it needs `uv`, and `pip` for the files.
set -eu
cd "$(dirname "$0")"
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT

printf '%s\n' 'jupyterhub==6.*' 'jupyterlab==4.*' cloudpickle configurable-http-proxy |
    uv pip compile --quiet --no-header --no-annotate --python-version 3.11 --output-file "$files/pins" -
for machine in x86_64 aarch64; do
    set -- --python-version 3.11 --only-binary :all:
    for glibc in 36 34 31 28 26 24 17 12 5; do set -- "$@" --platform "manylinux_2_${glibc}_$machine"; done
    pip download --quiet --no-deps "$@" --platform "manylinux2014_$machine" --dest "$files" --requirement "$files/pins"
done
{
    echo '# Made by lock.sh. One line per package, so that a review sees what changes.'
    while read -r pin; do
        name=$(echo "${pin%%==*}" | tr - _)
        hashes=$(find "$files" -iname "$name-${pin##*==}-*.whl" -exec sha256sum {} + | cut -d ' ' -f 1 | sort -u)
        # shellcheck disable=SC2086
        echo "$pin" $(printf -- '--hash=sha256:%s ' $hashes)
    done <"$files/pins"
} >requirements.txt
