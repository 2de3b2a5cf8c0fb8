//! Spools under processes that are killed, on disks that fail, and with damaged files.

mod damage;
mod disk;
mod kill;
mod support;
