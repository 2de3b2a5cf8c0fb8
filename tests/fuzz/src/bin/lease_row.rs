//! `make fuzz TARGET=lease-row`.

fn main() {
    shardmill_fuzz::engine::run(shardmill_fuzz::targets::lease_row::run);
}
