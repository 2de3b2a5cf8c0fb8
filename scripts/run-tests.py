#!/usr/bin/env python3
"""Lints and builds the workspace's tests and runs them, several programs at a time.

usage: scripts/run-tests.py CARGO_TEST_FLAGS...

Tests are built by clippy (see test-compiler.sh), warnings are errors: one pass over the workspace instead of two.

`cargo test` runs one program after another, and most of these wait for others most of the time. What a program prints is
shown in one piece when it has ended, as `cargo test` shows it; what of it failed is listed at the end. TEST_JOBS says how many
run at a time (2 unless it is set).
"""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed


def compiler():
    """The environment of cargo when it builds tests."""
    driver = os.path.join(os.path.dirname(os.path.abspath(__file__)), "test-compiler.sh")
    # The form in which cargo-clippy hands arguments to its driver.
    arguments = "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__"
    return dict(os.environ, RUSTC_WORKSPACE_WRAPPER=driver, CLIPPY_ARGS=arguments)


def build(flags):
    """Each test program with the folder of its package, which is where cargo runs it."""
    command = ["cargo", "test", *flags, "--no-run", "--message-format=json-render-diagnostics"]
    programs = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=compiler()) as cargo:
        for line in cargo.stdout:
            message = json.loads(line)
            is_test = message.get("reason") == "compiler-artifact" and message["profile"]["test"]
            if is_test and message.get("executable"):
                folder = os.path.dirname(message["manifest_path"])
                target = message["target"]
                path = os.path.relpath(target["src_path"], folder)
                name = f"unittests {path}" if target["kind"] != ["test"] else path
                programs.append((os.path.relpath(folder), name, message["executable"]))
    if cargo.returncode != 0:
        sys.exit(cargo.returncode)
    # With a test of its package the binary is built as well, as tests are: what is tested is the one that people run.
    subprocess.run(["cargo", "build", *flags, "--quiet", "--bin", "shardmill"], check=True)
    return programs


def run(folder, executable):
    began = time.monotonic()
    environment = dict(os.environ, CARGO_MANIFEST_DIR=os.path.abspath(folder))
    done = subprocess.run(
        [executable], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL, check=False,
    )
    return done.returncode, done.stdout, time.monotonic() - began


def main():
    flags = sys.argv[1:]
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        # `nohup` is for this program: those that are tested are to take the signal, as they do elsewhere. A handler, unlike an
        # ignored signal, is not handed on.
        signal.signal(signal.SIGHUP, lambda _signal, _frame: None)
    programs = build(flags)
    # Those that run the binary wait most, and take longest: the others fill the gaps.
    programs.sort(key=lambda program: program[0] != "tests")
    failed = []
    with ThreadPoolExecutor(max_workers=int(os.environ.get("TEST_JOBS", "2"))) as pool:
        running = {pool.submit(run, folder, executable): (folder, name) for folder, name, executable in programs}
        for ended in as_completed(running):
            folder, name = running[ended]
            code, text, seconds = ended.result()
            print(f"     Running {folder}: {name} ({seconds:.0f} s)", flush=True)
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()
            if code != 0:
                failed.append(f"{folder}: {name} (exit status {code})")
    documentation = subprocess.run(["cargo", "test", *flags, "--doc"], env=compiler(), check=False)
    if documentation.returncode != 0:
        failed.append("documentation")
    for program in failed:
        print(f"failed: {program}", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
