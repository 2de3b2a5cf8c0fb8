//! A configuration's text.
//!
//! A mistake is told with its file and its place in it, and can be drawn. What is taken means the same when it is read again,
//! and is within the bounds that everything behind it relies on.

use std::path::Path;

use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme};
use shardmill::config::{self, Config, Error, Processor};

const NAME: &str = "shardmill.toml";

/// See the module.
pub fn run(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match parse(text) {
        Ok(config) => {
            is_sound(&config);
            let again = parse(text).expect("what was taken once is taken again");
            assert_eq!(format!("{:?}", config.processors), format!("{:?}", again.processors));
        }
        Err(error) => is_told(&error, text),
    }
}

fn parse(text: &str) -> Result<Config, Error> {
    config::parse(NAME, text, Path::new("/etc/shardmill"))
}

fn is_told(error: &Error, text: &str) {
    assert!(!error.to_string().trim().is_empty());
    for label in error.labels().into_iter().flatten() {
        let end = label.offset().checked_add(label.len()).expect("a place in the text");
        assert!(end <= text.len() && text.is_char_boundary(label.offset()), "{label:?}");
    }
    let mut drawn = String::new();
    let drawing = GraphicalReportHandler::new_themed(GraphicalTheme::none());
    drawing.render_report(&mut drawn, error).expect("a mistake can be drawn");
    assert!(drawn.contains(NAME), "{drawn}");
}

fn is_sound(config: &Config) {
    assert!(!config.application.is_empty() && !config.processors.is_empty());
    assert!(config.leases.renew < config.leases.expiry);
    assert!((1..=1000).contains(&config.max_hops));
    for warning in &config.warnings {
        assert!(warning.starts_with(NAME) && !warning.contains('\n'), "{warning}");
    }
    for (name, processor) in &config.processors {
        assert_eq!(*name, processor.name);
        is_sound_alone(processor);
    }
}

fn is_sound_alone(processor: &Processor) {
    assert_eq!(processor.lease_table.is_some(), !processor.streams.is_empty());
    assert!(processor.lease_table.as_ref().is_none_or(|table| (3..=245).contains(&table.len())));
    assert!(processor.plugin.is_absolute() && processor.config.is_object());
    assert!((1..=10_000).contains(&processor.batch.records) && processor.batch.bytes > 0);
    assert!(processor.retry.attempts >= 1 && processor.retry.backoff <= processor.retry.max_backoff);
    assert!(processor.limits.instances >= 1 && processor.limits.memory > 0);
    for stream in &processor.streams {
        assert!(stream.idle <= stream.idle_max && stream.reads_per_second >= 1 && stream.bytes_per_second >= 1);
    }
}
