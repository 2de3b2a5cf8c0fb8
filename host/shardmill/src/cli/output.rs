//! What a command prints: results on standard output, and what people are told on standard error.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::time::sleep;

/// How often it is looked whether anybody still reads.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Prints a line. A reader that has gone away (`… | head`) ends the process as it ends any Unix tool, quietly.
pub(crate) fn line(text: impl Display) {
    end_with(try_line(text));
}

/// Prints many lines at once, each with its end, or payloads.
pub(crate) fn bytes(bytes: &[u8]) {
    end_with(try_bytes(bytes));
}

/// Prints a line, for a command whose work does not end when nobody reads of it.
pub(crate) fn try_line(text: impl Display) -> io::Result<()> {
    try_bytes(format!("{text}\n").as_bytes())
}

/// Prints many lines at once, for such a command.
pub(crate) fn try_bytes(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Tells people something on standard error, one line or many. Where nobody reads that, or it cannot be written, the work
/// goes on: the macros of the standard library would break it off.
pub(crate) fn say(text: impl Display) {
    ask(format_args!("{text}\n"));
}

/// The same, without the end of a line.
pub(crate) fn ask(text: impl Display) {
    let mut err = io::stderr().lock();
    let _unread = err.write_all(text.to_string().as_bytes());
    let _unread = err.flush();
}

/// Comes back when nobody can read any more what is printed; never where that is a file.
pub(crate) async fn reader_gone() {
    while !is_reader_gone() {
        sleep(LOOK_EVERY).await;
    }
}

fn is_reader_gone() -> bool {
    let out = io::stdout();
    let mut polled = [PollFd::new(&out, PollFlags::empty())];
    let seen = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    seen.is_ok() && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

fn end_with(printed: io::Result<()>) {
    match printed {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            say(format_args!("standard output cannot be written: {error}"));
            std::process::exit(1);
        }
    }
}
