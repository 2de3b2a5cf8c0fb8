//! What wasmtime generates from `wit/v0.1`. One world has all that a guest can export; a guest is never asked for all
//! of it, its interfaces are looked up one by one.
#![allow(unsafe_code, missing_docs, unreachable_pub, dead_code, clippy::all, reason = "generated")]

wasmtime::component::bindgen!({
    path: "../../wit/v0.1",
    inline: "
        package shardmill:host;
        world all {
            include shardmill:processor/imports@0.1.0;
            export shardmill:processor/batch@0.1.0;
            export shardmill:processor/columnar@0.1.0;
            export shardmill:processor/hooks@0.1.0;
        }
    ",
    world: "shardmill:host/all",
    ownership: Borrowing { duplicate_if_necessary: true },
    exports: { default: async },
    require_store_data_send: true,
});
