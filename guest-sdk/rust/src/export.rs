//! The macro that makes a crate a component.

/// Exports a type as this crate's processor. Once in a crate, which is built as a `cdylib`.
///
/// ```ignore
/// shardmill_guest::processor!(FlightDelays);         // a Processor or a RecordProcessor
/// shardmill_guest::processor!(FlightDelays, hooks);  // and Hooks besides
/// ```
///
/// On other targets than wasm32 this exports nothing, and only checks that the traits are there.
///
/// Exported functions have to carry fixed symbol names, which Rust counts as unsafe code, and they have to be in
/// the crate that is built. That code comes from this macro, so the crate may `forbid(unsafe_code)` all the same:
/// the lint does not look into macros of other crates.
#[macro_export]
macro_rules! processor {
    ($processor:ty) => {
        const _: () = $crate::__private::must_be_a_processor::<$processor>();
        $crate::__export_processor!($processor,);
    };
    ($processor:ty, hooks) => {
        const _: () = $crate::__private::must_have_hooks::<$processor>();
        $crate::__export_processor!($processor, hooks);
    };
}

/// What [`processor!`] does on wasm32.
#[doc(hidden)]
#[macro_export]
macro_rules! __export_processor {
    ($processor:ty, $($hooks:ident)?) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct Export;

            ::std::thread_local! {
                static PROCESSOR: $crate::__private::Slot<$processor> = const { $crate::__private::Slot::empty() };
            }

            impl $crate::__private::Component for Export {
                type Processor = $processor;

                fn slot() -> &'static ::std::thread::LocalKey<$crate::__private::Slot<$processor>> {
                    &PROCESSOR
                }
            }

            $crate::__private::columnar::export!(Export with_types_in $crate::__private::columnar);
            $($crate::__private::$hooks::export!(Export with_types_in $crate::__private::$hooks);)?
        };
    };
}
