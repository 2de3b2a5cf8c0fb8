//! `make fuzz TARGET=service-answer`.

fn main() {
    shardmill_fuzz::engine::run(shardmill_fuzz::targets::service_answer::run);
}
