//! `make fuzz TARGET=deaggregate`.

fn main() {
    shardmill_fuzz::engine::run(shardmill_fuzz::targets::deaggregate::run);
}
