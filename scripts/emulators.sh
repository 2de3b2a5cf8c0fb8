#!/usr/bin/env bash
# Sets up the independent emulators of Kinesis and DynamoDB that the tests run against, and others' codecs of the KPL's
# aggregates, in the cache folder.
# usage: scripts/emulators.sh           all of them
#        scripts/emulators.sh NAME      one of them, and prints its folder
#
# kinesis-local, dynalite and kinesis-agg-node come from npm, ministack and kinesis-agg-python from PyPI: the versions in
# tests/emulators, and whatever they need, each in a folder of its own whose name has the digest of those files. About half
# a minute and 150 MB, once; registries and proxies are those that npm and pip are set up for. Progress goes to stderr, the
# answer to stdout.
set -euo pipefail
export LC_ALL=C # the order of files
cd "$(dirname "$0")/.."

readonly recipe=r1 # part of the folders' names: change it whenever the steps below change what they produce
readonly names=(kinesis-local dynalite kinesis-agg-node ministack kinesis-agg-python)
readonly locks=tests/emulators
readonly cache=${XDG_CACHE_HOME:-$HOME/.cache}/shardmill
readonly stamp=complete

say() { printf 'emulators: %s\n' "$*" >&2; }
fail() {
  say "failed: $1"
  say "what to do: $2"
  exit 1
}

sha256() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }

folder_of() {
  local name=$1 digest
  digest=$(cat "$locks/$name"/* | sha256)
  printf '%s/emulator-%s-%s-%s\n' "$cache" "$name" "${digest:0:12}" "$recipe"
}

# Finished, and able to run: a virtual environment stops working when the Python it was made with goes.
is_ready() {
  local folder=$1
  [ -e "$folder/$stamp" ] && { [ ! -e "$folder/bin" ] || "$folder/bin/python" -c '' 2>/dev/null; }
}

# --- what installs ---------------------------------------------------------------------------------------------------

# Without the packages' own scripts: they would compile a store on disk, and nothing is kept here.
from_npm() {
  local name=$1 folder=$2
  scripts/prerequisites.sh node
  cp "$locks/$name/package.json" "$locks/$name/package-lock.json" "$folder/"
  npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null ||
    fail "npm ci of $name" "check that npm reaches its registry ('npm ping', 'npm config list'), then run this again"
}

from_pypi() {
  local name=$1 folder=$2
  scripts/prerequisites.sh python
  python3 -m venv "$folder" >&2 ||
    fail "python3 -m venv" "Debian: sudo apt-get install python3-venv; elsewhere a Python with venv and ensurepip"
  # What is not compiled now is compiled when it is first used, which is a small part of it.
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --only-binary :all: \
    --require-hashes --requirement "$locks/$name/requirements.txt" >&2 ||
    fail "pip install of $name" "check that pip reaches its index ('pip config list'), then run this again"
}

# ----------------------------------------------------------------------------------------------------------------------

set_up() {
  local name=$1 folder=$2
  say "setting up $name in $folder"
  rm -rf "$folder" # what a run that was stopped left behind
  mkdir -p "$folder"
  case $name in
    ministack | kinesis-agg-python) from_pypi "$name" "$folder" ;;
    *) from_npm "$name" "$folder" ;;
  esac
  : >"$folder/$stamp"
}

# One run at a time, where the system can say so.
ensure() {
  local name=$1 folder
  folder=$(folder_of "$name")
  if ! is_ready "$folder"; then
    mkdir -p "$cache"
    (
      if command -v flock >/dev/null; then
        flock --nonblock 9 || { say "another run is setting them up, waiting" && flock 9; }
      fi
      is_ready "$folder" || set_up "$name" "$folder"
    ) 9>"$cache/emulators.lock"
  fi
  printf '%s\n' "$folder"
}

case ${1:-all} in
  all) for name in "${names[@]}"; do ensure "$name" >/dev/null; done ;;
  kinesis-local | dynalite | kinesis-agg-node | ministack | kinesis-agg-python) ensure "$1" ;;
  *) fail "there is no emulator $1" "one of: ${names[*]}" ;;
esac
