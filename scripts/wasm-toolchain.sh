#!/usr/bin/env bash
# Prints the rustc that compiles guests (wasm32-wasip2), setting it up first where needed:
# usage: RUSTC=$(scripts/wasm-toolchain.sh) cargo build --target wasm32-wasip2 ...
#
# 1. The installed rustc, when it has the target or rustup can add it.
# 2. Otherwise, on Debian: Debian's rustc in a private folder of the cache, with the linkers of the installed
#    toolchain and a standard library built from Debian's own source. About 3 minutes and 500 MB, once; nothing
#    outside that folder changes, and no root is needed.
#
# SHARDMILL_WASM_TOOLCHAIN=rustup|debian tries only that way. Progress goes to stderr, the answer to stdout.
set -euo pipefail

readonly target=wasm32-wasip2
readonly recipe=r1 # part of the folder's name: change it whenever the steps below change what they produce
readonly way=${SHARDMILL_WASM_TOOLCHAIN:-any}
readonly cache=${XDG_CACHE_HOME:-$HOME/.cache}/shardmill
readonly stamp=complete

say() { printf 'wasm toolchain: %s\n' "$*" >&2; }
fail() {
  say "failed: $1"
  say "what to do: $2"
  exit 1
}

# --- the installed rustc --------------------------------------------------------------------------------------------

has_target() {
  local libdir
  libdir=$("$1" --print target-libdir --target "$target" 2>/dev/null) && compgen -G "$libdir/libstd-*.rlib" >/dev/null
}

add_with_rustup() {
  command -v rustup >/dev/null || return 1
  say "rustup target add $target"
  local limit=()
  if command -v timeout >/dev/null; then limit=(timeout 120); fi
  "${limit[@]+"${limit[@]}"}" rustup target add "$target" >&2 && has_target rustc
}

# --- Debian's rustc -------------------------------------------------------------------------------------------------

# A finished toolchain of this recipe whose parts outside the cache (the linkers) are still there.
finished_toolchain() {
  local prefix
  for prefix in "$cache"/wasm-toolchain-*-"$recipe"; do
    if [ -e "$prefix/$stamp" ] && [ -e "$prefix/linkers/wasm-component-ld" ] && has_target "$prefix/bin/rustc"; then
      printf '%s\n' "$prefix/bin/rustc"
      return 0
    fi
  done
  return 1
}

# apt-get and apt-cache on package lists of our own: works without root, and when the system's lists are empty.
apt_options=()
use_private_package_lists() {
  local state=$cache/apt
  mkdir -p "$state/lists/partial" "$state/archives/partial"
  apt_options=(-o "Dir::State::lists=$state/lists" -o "Dir::Cache=$state" -o "APT::Sandbox::User=$(id -un)")
  say "fetching package lists (Debian)"
  apt-get "${apt_options[@]}" -qq update >&2 ||
    fail "apt-get update" "check the network and /etc/apt/sources.list, then run this again"
}

candidate() { apt-cache "${apt_options[@]+"${apt_options[@]}"}" policy "$1" | awk '$1 == "Candidate:" && $2 != "(none)" { print $2 }'; }
dependency() {
  apt-cache "${apt_options[@]+"${apt_options[@]}"}" depends --important "$1=$2" |
    awk -v like="$3" '$1 == "Depends:" && $2 ~ like { print $2; exit }'
}

unpack_debian_rust() {
  local prefix=$1 version=$2 std llvm
  std=$(dependency libstd-rust-web-dev "$version" '^libstd-rust-web-[0-9]')
  llvm=$(dependency "$std" "$version" '^libllvm')
  [ -n "$std" ] && [ -n "$llvm" ] ||
    fail "Debian's rustc-web $version names no standard library or LLVM" "run 'apt-get update', then this again"

  say "downloading rustc $version and its source from Debian (140 MB)"
  mkdir -p "$prefix/deb"
  (cd "$prefix/deb" && apt-get "${apt_options[@]+"${apt_options[@]}"}" -o "APT::Sandbox::User=$(id -un)" -qq download \
    "rustc-web=$version" "libstd-rust-web-dev=$version" "$std=$version" "rust-web-src=$version" "$llvm" wasi-libc >&2) ||
    fail "apt-get download" "run 'apt-get update' (as root), check the network, then run this again"

  say "unpacking"
  local package
  for package in rustc-web libstd-rust-web-dev "$std" "$llvm" wasi-libc; do
    dpkg -x "$prefix/deb/${package}"_*.deb "$prefix/root"
  done
  mkdir -p "$prefix/root/usr/lib/rustlib/src/rust"
  dpkg --fsys-tarfile "$prefix"/deb/rust-web-src_*.deb |
    tar -x -C "$prefix/root/usr/lib/rustlib/src/rust" --strip-components=4 --wildcards './usr/src/rustc-*/library/*'
  rm -rf "$prefix/deb"
}

# Debian ships neither the wasm linker nor the componentizer under the names rustc looks for; rustup's toolchains do.
borrow_linkers() {
  local prefix=$1 host=$2 linkers tool
  linkers=$(rustc --print sysroot)/lib/rustlib/$host/bin
  for tool in rust-lld wasm-component-ld gcc-ld; do
    [ -e "$linkers/$tool" ] ||
      fail "the installed Rust has no $tool in $linkers" "install Rust with rustup (https://rustup.rs), 1.82 or newer"
  done
  mkdir -p "$prefix/root/usr/lib/rustlib/$host/bin"
  ln -sfn "$linkers" "$prefix/linkers"
  for tool in rust-lld wasm-component-ld gcc-ld; do
    ln -sfn "$linkers/$tool" "$prefix/root/usr/lib/rustlib/$host/bin/$tool"
  done
}

write_rustc_wrapper() {
  local prefix=$1
  mkdir -p "$prefix/bin"
  cat >"$prefix/bin/rustc" <<'SH'
#!/bin/sh
usr=$(dirname "$(dirname "$(readlink -f "$0")")")/root/usr
for libraries in "$usr"/lib/*-linux-gnu; do break; done
LD_LIBRARY_PATH=$libraries exec "$usr/bin/rustc" "$@"
SH
  chmod +x "$prefix/bin/rustc"
}

build_standard_library() {
  local prefix=$1 rustlib=$1/root/usr/lib/rustlib wasi=$1/root/usr/lib/wasm32-wasi
  mkdir -p "$prefix/seed/src"
  : >"$prefix/seed/src/lib.rs"
  printf '%s\n' '[package]' 'name = "seed"' 'version = "0.0.0"' 'edition = "2021"' '[workspace]' \
    '[profile.release]' 'opt-level = 3' 'codegen-units = 1' 'panic = "abort"' >"$prefix/seed/Cargo.toml"

  say "building the standard library for $target (a minute or two)"
  # -Zbuild-std is a nightly flag; with Debian's compiler and Debian's source of the same version it is safe to unlock.
  (cd "$prefix/seed" && env -u CARGO_TARGET_DIR -u RUSTC_WRAPPER -u RUSTC_WORKSPACE_WRAPPER -u CARGO_ENCODED_RUSTFLAGS \
    RUSTC="$prefix/bin/rustc" RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Cembed-bitcode=yes -L $wasi" \
    cargo build --quiet --release -Zbuild-std=std,panic_abort --target "$target" >&2) ||
    fail "building the standard library" "check that cargo can download crates (the first error is above), then run this again"

  local lib=$rustlib/$target/lib
  mkdir -p "$lib/self-contained"
  cp "$prefix/seed/target/$target/release/deps"/lib*.rlib "$lib/"
  rm -f "$lib"/libseed*
  cp "$wasi"/*.a "$wasi"/*.o "$lib/self-contained/"
  rm -rf "$prefix/seed"
}

has_debian_tools() {
  local tool
  for tool in apt-get apt-cache dpkg flock cargo; do
    command -v "$tool" >/dev/null || return 1
  done
}

set_up_from_debian() {
  local host version prefix
  host=$(rustc -vV | awk '$1 == "host:" { print $2 }')

  mkdir -p "$cache"
  exec 9>"$cache/wasm-toolchain.lock"
  if ! flock --nonblock 9; then
    say "another run is setting it up, waiting"
    flock 9
    finished_toolchain && return 0
  fi

  version=$(candidate rustc-web)
  if [ -z "$version" ] || [ -z "$(candidate wasi-libc)" ]; then
    use_private_package_lists
    version=$(candidate rustc-web)
  fi
  [ -n "$version" ] && [ -n "$(candidate wasi-libc)" ] ||
    fail "this Debian has no rustc-web or wasi-libc" "let rustup download: 'rustup target add $target'"

  prefix=$cache/wasm-toolchain-${version%%[+-]*}-$recipe
  say "setting up $prefix"
  rm -rf "$prefix" # what a run that was stopped left behind
  mkdir -p "$prefix"
  unpack_debian_rust "$prefix" "$version"
  borrow_linkers "$prefix" "$host"
  write_rustc_wrapper "$prefix"
  build_standard_library "$prefix"
  has_target "$prefix/bin/rustc" || fail "the new rustc does not see $target" "remove $prefix and run this again"
  printf '%s\n' "$version" >"$prefix/$stamp"
  say "ready"
  printf '%s\n' "$prefix/bin/rustc"
}

# --------------------------------------------------------------------------------------------------------------------

command -v rustc >/dev/null || fail "no rustc" "install Rust with rustup (https://rustup.rs)"
if [ "$way" != debian ]; then
  if has_target rustc; then
    command -v rustc
    exit 0
  fi
fi
if [ "$way" != rustup ] && finished_toolchain; then exit 0; fi
if [ "$way" != debian ] && add_with_rustup; then
  command -v rustc
  exit 0
fi
if [ "$way" != rustup ] && has_debian_tools; then
  say "using Debian's rustc"
  set_up_from_debian
  exit 0
fi
fail "no way to get $target" "with network access: 'rustup target add $target'; on Debian: check that apt-get, dpkg and flock exist"
