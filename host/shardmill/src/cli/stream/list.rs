//! `shardmill stream list`

use aws_sdk_kinesis::operation::list_streams::ListStreamsOutput;
use aws_sdk_kinesis::types::{StreamMode, StreamSummary};
use clap::Args;
use serde_json::{Value, json};
use shardmill_cause::code;
use shardmill_stream::{Call, Error};

use crate::cli::{Failure, access, output, text};

pub(super) const EXAMPLES: &str = "\
Examples:
  shardmill stream list
  shardmill stream list --prefix orders-
  shardmill stream list --json | jq -r 'select(.status == \"ACTIVE\") | .stream'
  shardmill stream list --endpoint-url http://127.0.0.1:4567

Those of the account in one region, in the order of their names. With --json a stream is one line; a service that stands in for
Kinesis may know their names alone.";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Show streams alone whose names begin so.
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Print a JSON object for each stream, one a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: access::Arguments,
}

/// A stream as a listing has it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listed {
    name: String,
    arn: Option<String>,
    status: Option<String>,
    capacity: Option<&'static str>,
    /// In milliseconds since 1970.
    created_at: Option<u64>,
}

pub(super) async fn list(arguments: &Arguments) -> Result<(), Failure> {
    let (client, stop) = arguments.access.open_region().await?;
    let mut after = None;
    loop {
        // By name, and not by the token: that one runs out after some minutes, and is not known everywhere.
        let request = client.list_streams().set_exclusive_start_stream_name(after.take());
        let answer = tokio::select! {
            biased;
            () = stop.cancelled() => return Err(Failure::running("interrupted: there may be more streams").code(code::command::INTERRUPTED)),
            answer = request.send() => answer,
        };
        let answer = answer.map_err(|error| {
            let region = client.config().region().map(ToString::to_string);
            Failure::from(Error::sort(Call::stream("ListStreams", "*"), region, &error))
        })?;
        let page = Listed::all(&answer);
        page.iter().filter(|stream| stream.name.starts_with(&arguments.prefix)).for_each(|stream| {
            if arguments.json {
                output::line(text::json(&stream.json()));
            } else {
                output::line(stream.line());
            }
        });
        match page.last() {
            Some(last) if answer.has_more_streams => after = Some(last.name.clone()),
            _end => return Ok(()),
        }
    }
}

// === impl Listed ===

impl Listed {
    fn all(answer: &ListStreamsOutput) -> Vec<Self> {
        match answer.stream_summaries() {
            [] => answer.stream_names().iter().map(|name| Self::named(name)).collect(),
            summaries => summaries.iter().map(Self::of).collect(),
        }
    }

    fn named(name: &str) -> Self {
        Self { name: name.to_owned(), arn: None, status: None, capacity: None, created_at: None }
    }

    fn of(summary: &StreamSummary) -> Self {
        let created = summary.stream_creation_timestamp().and_then(|time| time.to_millis().ok());
        let capacity = summary.stream_mode_details().map(|details| match details.stream_mode() {
            StreamMode::OnDemand => "on-demand",
            _provisioned => "provisioned",
        });
        Self {
            name: summary.stream_name().to_owned(),
            arn: Some(summary.stream_arn().to_owned()),
            status: Some(summary.stream_status().as_str().to_owned()),
            capacity,
            created_at: created.and_then(|time| u64::try_from(time).ok()),
        }
    }

    fn line(&self) -> String {
        let words = [self.status.as_deref(), self.capacity].map(Option::unwrap_or_default);
        let created = self.created_at.map(text::time).unwrap_or_default();
        let line = format!("{:<40} {:<9} {:<12} {created}", text::line(&self.name), text::line(words[0]), words[1]);
        line.trim_end().to_owned()
    }

    fn json(&self) -> Value {
        json!({
            "stream": self.name,
            "arn": self.arn,
            "status": self.status,
            "capacity": self.capacity,
            "created_at": self.created_at,
        })
    }
}
