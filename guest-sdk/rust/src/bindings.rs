//! The generated bindings: of the columnar interface, and of the hooks as an addition to it. Two worlds, because
//! a component must export all of its world; the linker makes one of them where a processor has hooks.
#![allow(unsafe_code, missing_docs, unreachable_pub, clippy::all)]

pub mod columnar {
    wit_bindgen::generate!({
        path: "../../wit/v0.1",
        world: "columnar-processor",
        pub_export_macro: true,
        default_bindings_module: "shardmill_guest::__private::columnar",
        generate_unused_types: true,
    });
}

pub mod hooks {
    wit_bindgen::generate!({
        path: "../../wit/v0.1",
        inline: "
            package shardmill:guest;
            world only-hooks {
                export shardmill:processor/hooks@0.1.0;
            }
        ",
        with: { "shardmill:processor/types@0.1.0": super::columnar::shardmill::processor::types },
        pub_export_macro: true,
        default_bindings_module: "shardmill_guest::__private::hooks",
    });
}
