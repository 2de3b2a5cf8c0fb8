//! `make fuzz TARGET=module`.

fn main() {
    shardmill_fuzz::engine::run(shardmill_fuzz::targets::module::run);
}
