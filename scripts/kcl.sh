#!/usr/bin/env bash
# Builds the application of the KCL for Java that tests/tests/kcl runs against ours, in the cache folder.
# usage: scripts/kcl.sh     prints its class path
#
# The KCL and what it needs come from Maven Central in the versions of tests/kcl/pom.xml, into a folder whose name has the
# digest of that project. About a minute and 90 MB with Maven's own, once; nothing is asked of the network afterwards.
# Mirrors and proxies are those that Maven is set up for. Progress goes to stderr, the answer to stdout.
set -euo pipefail
export LC_ALL=C # the order of files
cd "$(dirname "$0")/.."

readonly recipe=r1 # part of the folder's name: change it whenever the steps below change what they produce
readonly project=tests/kcl
readonly cache=${XDG_CACHE_HOME:-$HOME/.cache}/shardmill
readonly stamp=complete

say() { printf 'kcl: %s\n' "$*" >&2; }
fail() {
  say "failed: $1"
  say "what to do: $2"
  exit 1
}

sha256() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }

files() { find "$project" -type f \( -name '*.java' -o -name '*.properties' -o -name pom.xml \) | sort; }

digest() { files | while read -r file; do printf '%s\n' "$file" && cat "$file"; done | sha256; }

build() {
  say "building the KCL application in $folder"
  rm -rf "$folder" # what a run that was stopped left behind
  mkdir -p "$folder"
  # Maven's only part is to find and check what the KCL needs.
  mvn --quiet --batch-mode --strict-checksums --file "$project/pom.xml" dependency:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$folder/lib" >&2 ||
    fail "mvn dependency:copy-dependencies" "check that Maven reaches Maven Central or its mirror (~/.m2/settings.xml), then run this again"
  files | grep '\.java$' | xargs javac --release 17 -cp "$folder/lib/*" -d "$folder/classes" >&2 ||
    fail "javac" "the JDK's compiler has to be 17 or newer; what it says stands above"
  cp "$project"/src/main/resources/* "$folder/classes/"
  : >"$folder/$stamp"
}

scripts/prerequisites.sh java
sum=$(digest)
readonly folder=$cache/kcl-${sum:0:12}-$recipe
if [ ! -e "$folder/$stamp" ]; then
  scripts/prerequisites.sh maven
  mkdir -p "$cache"
  # One run at a time, where the system can say so.
  (
    if command -v flock >/dev/null; then
      flock --nonblock 9 || { say "another run is building it, waiting" && flock 9; }
    fi
    [ -e "$folder/$stamp" ] || build
  ) 9>"$cache/kcl.lock"
fi
printf '%s\n' "$folder/classes:$folder/lib/*"
