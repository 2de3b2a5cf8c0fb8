/// A room's codes as constants, and all of them in order.
macro_rules! codes {
    ($($name:ident = $code:literal $title:literal means $means:literal kept $kept:literal next $next:literal)+) => {
        $(
            #[doc = concat!("`", $code, "`: ", $title, ".")]
            pub const $name: $crate::code::Code = $crate::code::Code(&$crate::code::Entry {
                name: $code,
                title: $title,
                means: $means,
                kept: $kept,
                next: $next,
            });
        )+

        /// All of this room, in order.
        pub const ALL: &[$crate::code::Code] = &[$($name),+];
    };
}

pub(super) use codes;
