//! `make fuzz TARGET=get-records`.

fn main() {
    shardmill_fuzz::engine::run(shardmill_fuzz::targets::get_records::run);
}
