#!/usr/bin/env bash
# The compiler of scripts/lint.sh: clippy, with as little code made as the next crate needs.
# usage (by cargo): scripts/lint-driver.sh RUSTC ARGUMENTS...
set -euo pipefail
arguments=("$@")
is_test='' is_program='' out_dir='' name='' suffix='' previous=''
for argument in "$@"; do
  case $previous in
    --crate-name) name=$argument ;;
    --crate-type) [[ $argument == bin ]] && is_program=yes ;;
    --out-dir) out_dir=$argument ;;
  esac
  case $argument in
    --test) is_test=yes ;;
    extra-filename=*) suffix=${argument#extra-filename=} ;;
  esac
  previous=$argument
done
if [[ -z $is_test && -z $is_program ]]; then
  # Those that use a library read its metadata, which lie in a file that has code too.
  exec clippy-driver "$@" -C opt-level=0
fi
# Nobody uses a program: no code, nothing to link.
clippy-driver "${arguments[@]/#--emit=dep-info,link/--emit=dep-info,metadata}"
# Cargo looks whether there is an output. Not so for programs: what lies there would be taken for one.
if [[ -n $is_test ]]; then
  : >"$out_dir/$name$suffix"
fi
