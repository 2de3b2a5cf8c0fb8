//! Where a command looks for dead letters.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use aws_config::SdkConfig;
use clap::{ArgGroup, Args};
use shardmill_producer::Producer;
use shardmill_stream::Kinesis;
use tokio::sync::OnceCell;

use super::now;
use crate::aws::{self, Clients};
use crate::cli::Failure;
use crate::config::{self, Config, DeadLetters, Log, LogFormat};
use crate::dead_letters::Marks;
use crate::dead_letters::identity::Identity;
use crate::dead_letters::read::{Place, unreadable_folder};
use crate::telemetry;

/// Where letters are, as it is written on the command line.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("place").args(["config", "folder", "stream"]).required(true).multiple(true))]
pub(super) struct Arguments {
    /// The configuration file, whose [processors.NAME.dead-letters] say where letters are, and [aws] how AWS is reached.
    #[arg(long, short, value_name = "FILE", env = "SHARDMILL_CONFIG")]
    config: Option<PathBuf>,
    /// A folder of dead letters, in place of those that the configuration names.
    #[arg(long, value_name = "DIR", conflicts_with = "stream")]
    folder: Option<PathBuf>,
    /// A stream with dead letters, by its name or ARN, in place of those that the configuration names.
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// Where it is noted which letters have been sent again. For a folder that is a file beside its letters unless this
    /// names another one; for a stream there is none unless this names one.
    #[arg(long, value_name = "FILE")]
    marks: Option<PathBuf>,
}

/// Where letters are.
pub(super) struct Places {
    named: Vec<Named>,
    marks: Option<PathBuf>,
    aws: config::Aws,
    sdk: OnceCell<SdkConfig>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Named {
    Folder(PathBuf),
    Stream(String),
}

/// Which letters have been sent again, place by place.
pub(super) struct Book {
    marks: Vec<Marks>,
    /// Whether one file holds it for all places.
    is_one: bool,
}

// === impl Arguments ===

impl Arguments {
    /// Reads the configuration, if there is one, and sets up the log for warnings. `processor` is the one whose letters are
    /// wanted, if it is not all.
    pub(super) fn places(&self, processor: Option<&str>) -> Result<Places, Failure> {
        let config = self.config.as_deref().map(config::load_without_plugins).transpose()?;
        let format = config.as_ref().map_or(LogFormat::Human, |config| config.log.format);
        telemetry::init(&Log { format, filter: "warn".to_owned() })?;
        let named = match (&self.folder, &self.stream, &config) {
            (Some(folder), _, _) => vec![Named::Folder(folder.clone())],
            (None, Some(stream), _) => vec![Named::Stream(stream.clone())],
            (None, None, Some(config)) => configured(config, processor)?,
            // The command line asks for one of them.
            (None, None, None) => Vec::new(),
        };
        let aws = config.map(|config| config.aws).unwrap_or_default();
        Ok(Places { named, marks: self.marks.clone(), aws, sdk: OnceCell::new() })
    }
}

fn configured(config: &Config, processor: Option<&str>) -> Result<Vec<Named>, Failure> {
    if let Some(name) = processor
        && !config.processors.contains_key(name)
    {
        let names: Vec<&str> = config.processors.keys().map(String::as_str).collect();
        return Err(Failure::configuration(format!("the configuration has no processor `{name}`"))
            .help(format!("its processors: {}", names.join(", "))));
    }
    let processors = config.processors.values().filter(|found| processor.is_none_or(|name| name == found.name));
    let mut named = BTreeSet::new();
    for processor in processors {
        match &processor.dead_letters {
            Some(DeadLetters::Folder { path, .. }) => named.insert(Named::Folder(path.clone())),
            Some(DeadLetters::Stream { .. } | DeadLetters::Output { .. }) => {
                processor.dead_letter_stream().is_some_and(|stream| named.insert(Named::Stream(stream.to_owned())))
            }
            None => false,
        };
    }
    if named.is_empty() {
        let message = match processor {
            Some(name) => format!("the processor `{name}` keeps no dead letters"),
            None => "no processor of the configuration keeps dead letters".to_owned(),
        };
        return Err(Failure::configuration(message)
            .help("add a table [processors.NAME.dead-letters], or name a place with --folder or --stream"));
    }
    Ok(named.into_iter().collect())
}

// === impl Places ===

impl Places {
    /// To be read. A folder is there then.
    pub(super) async fn open(&self) -> Result<Vec<Place>, Failure> {
        let mut places = Vec::with_capacity(self.named.len());
        for named in &self.named {
            places.push(match named {
                Named::Folder(folder) => {
                    std::fs::read_dir(folder).map_err(|error| unreadable_folder(folder, &error))?;
                    Place::Folder(folder.clone())
                }
                Named::Stream(stream) => {
                    let clients = self.clients(stream).await?;
                    Place::Stream(stream.clone(), Kinesis::new(clients.kinesis_of(stream).clone()))
                }
            });
        }
        Ok(places)
    }

    /// How a place is called, by its number.
    pub(super) fn name(&self, place: usize) -> String {
        match &self.named[place] {
            Named::Folder(folder) => folder.display().to_string(),
            Named::Stream(stream) => stream.clone(),
        }
    }

    /// What is known of letters that have been sent again.
    pub(super) fn marks(&self) -> Result<Book, Failure> {
        self.book(Marks::read)
    }

    /// The same, held to note more.
    pub(super) fn hold_marks(&self) -> Result<Book, Failure> {
        self.book(Marks::hold)
    }

    fn book(&self, open: fn(&Path) -> std::io::Result<Marks>) -> Result<Book, Failure> {
        let open = |path: &Path| open(path).map_err(|error| unmarked(path, &error));
        let of_place = |named: &Named| match named {
            Named::Folder(folder) => open(&Marks::of_folder(folder)),
            Named::Stream(_) => Ok(Marks::default()),
        };
        match &self.marks {
            Some(file) => Ok(Book { marks: vec![open(file)?], is_one: true }),
            None => Ok(Book { marks: self.named.iter().map(of_place).collect::<Result<_, _>>()?, is_one: false }),
        }
    }

    /// Sends to a stream, by its name or ARN.
    pub(super) async fn producer(
        &self,
        stream: &str,
        options: shardmill_producer::Options,
    ) -> Result<Producer, Failure> {
        let client = self.clients(stream).await?.producer_of(stream).clone();
        let metrics = shardmill_producer::Metrics::default();
        Ok(Producer::new(client, stream.to_owned(), options, metrics, rand::random()))
    }

    async fn clients(&self, stream: &str) -> Result<Clients, Failure> {
        let sdk = self.sdk.get_or_init(|| aws::load(&self.aws)).await;
        if sdk.region().is_none() {
            return Err(crate::Error::NoRegion.into());
        }
        Ok(Clients::new(sdk, &self.aws).for_streams([stream], sdk, &self.aws))
    }
}

// === impl Book ===

impl Book {
    /// Whether a letter's record has been sent again, whichever place it was found in then.
    pub(super) fn contains(&self, identity: &Identity) -> bool {
        self.marks.iter().any(|marks| marks.contains(identity))
    }

    /// Notes what has been sent, of letters that were found in one place.
    pub(super) fn add(&mut self, place: usize, sent: &[Identity], to: &str) -> Result<(), Failure> {
        let marks = &mut self.marks[if self.is_one { 0 } else { place }];
        marks.add(sent, to, now()).map_err(|error| {
            Failure::running(format!("{} records were sent, and that cannot be noted in {error}", sent.len()))
                .help("the next replay sends them once more")
        })
    }
}

fn unmarked(path: &Path, error: &std::io::Error) -> Failure {
    let message = format!("which letters have been sent again is noted in {}: {error}", path.display());
    if error.kind() == std::io::ErrorKind::ResourceBusy {
        return Failure::unavailable(message).help("wait for it to end");
    }
    Failure::configuration(message).help("name another file with --marks FILE")
}
