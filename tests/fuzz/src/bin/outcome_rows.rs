//! `make fuzz TARGET=outcome-rows`.

fn main() {
    shardmill_fuzz::engine::run(shardmill_fuzz::targets::outcome_rows::run);
}
