//! `make fuzz TARGET=filter`.

fn main() {
    shardmill_fuzz::engine::run(shardmill_fuzz::targets::filter::run);
}
