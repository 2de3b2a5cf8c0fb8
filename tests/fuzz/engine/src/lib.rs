//! Nothing: what is wanted is the C++ that the build of `libfuzzer-sys` makes on the way.
