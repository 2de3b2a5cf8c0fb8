//! How it is seen that files change. What the kernel tells of their folders ([`Events`]) says when to look, and their
//! [`Identity`] whether there is something to read. When it is read, and what comes of it, is the affair of those who watch:
//! of a worker whose plugins and configuration change, and of `shardmill plugin test --watch`.

mod events;
mod identity;

pub(crate) use self::events::Events;
pub(crate) use self::identity::Identity;
