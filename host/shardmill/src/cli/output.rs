//! What a command prints on standard output.

use std::fmt::Display;
use std::io::Write;

/// Prints a line. A reader that has gone away (`… | head`) ends the process as it ends any Unix tool, quietly.
pub(crate) fn line(text: impl Display) {
    print(|out| writeln!(out, "{text}"));
}

/// Prints many lines at once, each with its end.
pub(crate) fn lines(text: &str) {
    print(|out| out.write_all(text.as_bytes()));
}

fn print(write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) {
    let mut out = std::io::stdout().lock();
    match write(&mut out).and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            eprintln!("standard output cannot be written: {error}");
            std::process::exit(1);
        }
    }
}
