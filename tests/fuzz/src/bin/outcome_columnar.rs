//! `make fuzz TARGET=outcome-columnar`.

fn main() {
    shardmill_fuzz::engine::run(shardmill_fuzz::targets::outcome_columnar::run);
}
