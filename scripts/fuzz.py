#!/usr/bin/env python3
"""Builds the fuzz targets of tests/fuzz with libFuzzer and the stable compiler, and lets each look for new inputs for a while.

usage: scripts/fuzz.py CARGO_BUILD_FLAGS...

FUZZ_SECONDS says for how long each (60 unless it is set), FUZZ_TARGETS which ones (all; several are separated by spaces),
FUZZ_JOBS how many at a time (2). What is found stays in target/fuzz/TARGET; with FUZZ_KEEP=1 as much of it as reaches what
nothing else does is put into tests/fuzz/corpora, which is committed. Ends with 1 if an input is taken wrongly, and says how to
run it again.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUZZ = ROOT / "tests" / "fuzz"
TARGET_FOLDER = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve()
FOUND = TARGET_FOLDER / "fuzz"

# Of a corpus that is committed: tests/fuzz/tests/corpora.rs goes through it each time.
MOST_FILES = 200
MOST_BYTES = 200 << 10
# An input may take so long, and all of them so much memory; else it is taken wrongly.
LIMITS = ["-timeout=10", "-rss_limit_mb=2048"]
# Nothing of interest is longer. libFuzzer begins with short ones, and mutations of long ones are slow.
MOST_INPUT = 4096


def targets():
    """Those that were asked for, of all that there are."""
    known = sorted(path.stem.replace("_", "-") for path in (FUZZ / "src" / "bin").glob("*.rs"))
    wanted = os.environ.get("FUZZ_TARGETS", "").split() or known
    for name in wanted:
        if name not in known:
            sys.exit(f"there is no target {name}; there are {', '.join(known)}")
    return wanted


def engine():
    """The folder with libFuzzer, which the build of a crate makes."""
    command = [
        "cargo", "build", "--release", "--locked", "--message-format=json-render-diagnostics",
        "--manifest-path", str(FUZZ / "engine" / "Cargo.toml"), "--target-dir", str(FOUND / "engine"),
    ]
    environment = {name: value for name, value in os.environ.items() if name != "RUSTC_WORKSPACE_WRAPPER"}
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    if built.returncode != 0:
        sys.exit(built.returncode)
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "build-script-executed" and "libfuzzer-sys" in message["package_id"]:
            return message["out_dir"]
    sys.exit("the build of libfuzzer-sys has made no libFuzzer")


def build(names, flags):
    command = ["cargo", "build", *flags, "--features", "shardmill-fuzz/engine"]
    for name in names:
        command += ["--bin", f"fuzz-{name}"]
    environment = dict(
        os.environ,
        SHARDMILL_FUZZ_ENGINE=engine(),
        RUSTC_WORKSPACE_WRAPPER=str(ROOT / "scripts" / "fuzz-rustc.sh"),
    )
    built = subprocess.run(command, env=environment, check=False)
    if built.returncode != 0:
        sys.exit(built.returncode)


def program(name):
    return str(TARGET_FOLDER / "release" / f"fuzz-{name}")


def known_inputs(name):
    """Folders with inputs that are committed."""
    return [str(folder) for folder in (FUZZ / "corpora" / name, FUZZ / "seeds" / name) if folder.is_dir()]


def fuzz(name, seconds):
    """What libFuzzer said, and how it ended."""
    corpus = FOUND / name / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    command = [
        program(name), f"-max_total_time={seconds}", f"-max_len={MOST_INPUT}", "-print_final_stats=1", "-use_value_profile=1",
        *LIMITS, f"-artifact_prefix={FOUND / name}/", str(corpus), *known_inputs(name),
    ]
    dictionary = FUZZ / "dictionaries" / f"{name}.dict"
    if dictionary.is_file():
        command.insert(1, f"-dict={dictionary}")
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False
    )
    said = done.stdout.decode(errors="replace")
    (FOUND / name / "log").write_text(said)
    return said, done.returncode


def summary(name, said):
    """Inputs that were run, those of them a second, places in the code that were reached, and inputs that are kept."""
    def number(what):
        return next(iter(re.findall(rf"^stat::{what}:\s+(\d+)", said, re.MULTILINE)), "?")

    reached = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", said)
    places, features, kept = reached[-1] if reached else ("?", "?", "?")
    return (
        f"{name:<18} {number('number_of_executed_units'):>9} inputs {number('average_exec_per_sec'):>7}/s "
        f"{places:>7} places {features:>7} features {kept:>6} in the corpus {number('new_units_added'):>6} new"
    )


def crash(name, said):
    """How an input that is taken wrongly is found again."""
    written = re.findall(r"Test unit written to (\S+)", said)
    # A panic, or a bound of libFuzzer's that was passed; or else it could not begin.
    shown = re.findall(r"panicked at [^\n]*\n[^\n]*|ERROR: libFuzzer: [^\n]*", said) or said.splitlines()[-20:]
    if not written:
        return "\n".join([f"{name}: libFuzzer has failed", *shown])
    path = os.path.relpath(written[-1])
    return (
        f"{name}: an input is taken wrongly\n{shown[0]}\n"
        f"the input:    {path}\n"
        f"run it again: {os.path.relpath(program(name))} {path}\n"
        f"keep it:      cp {path} {os.path.relpath(FUZZ / 'corpora' / name)}/\n"
        f"the log:      {os.path.relpath(FOUND / name / 'log')}"
    )


def keep(name):
    """Puts as few and small inputs as reach all that is reached, of what is known and what was found, into the corpus."""
    corpus = FUZZ / "corpora" / name
    corpus.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOUND) as smallest:
        # By places in the code and not by how often they are passed, or a corpus has thousands of files.
        command = [
            program(name), "-set_cover_merge=1", "-use_counters=0", f"-max_len={MOST_INPUT}", *LIMITS, smallest, str(corpus),
            str(FOUND / name / "corpus"),
        ]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            sys.exit(f"{name}: the inputs cannot be merged\n{done.stdout.decode(errors='replace')[-2000:]}")
        # Where they are too many, those that hold most reach most.
        inputs = sorted((path.read_bytes() for path in Path(smallest).iterdir()), key=len, reverse=True)
    # Those that were taken wrongly once have names, and stay.
    for path in corpus.iterdir():
        if re.fullmatch(r"[0-9a-f]{40}", path.name):
            path.unlink()
    files = bytes_ = 0
    for content in inputs:
        if files == MOST_FILES or bytes_ + len(content) > MOST_BYTES:
            continue
        (corpus / hashlib.sha1(content).hexdigest()).write_bytes(content)
        files, bytes_ = files + 1, bytes_ + len(content)
    print(f"{name}: {files} inputs of {bytes_} bytes are kept, of {len(inputs)}", flush=True)


def main():
    names = targets()
    seconds = int(os.environ.get("FUZZ_SECONDS") or 60)
    jobs = int(os.environ.get("FUZZ_JOBS") or 2)
    build(names, sys.argv[1:])
    rounds = -(-len(names) // jobs)
    print(f"{len(names)} targets, {seconds} s each, {jobs} at a time: {rounds * seconds} s", flush=True)
    failed = False
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        running = {pool.submit(fuzz, name, seconds): name for name in names}
        for ended in as_completed(running):
            said, code = ended.result()
            print(summary(running[ended], said), flush=True)
            if code != 0:
                failed = True
                print(crash(running[ended], said), file=sys.stderr, flush=True)
    if failed:
        sys.exit(1)
    if os.environ.get("FUZZ_KEEP") == "1":
        for name in names:
            keep(name)


if __name__ == "__main__":
    main()
