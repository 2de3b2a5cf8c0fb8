//! `make fuzz TARGET=configuration`.

fn main() {
    shardmill_fuzz::engine::run(shardmill_fuzz::targets::configuration::run);
}
