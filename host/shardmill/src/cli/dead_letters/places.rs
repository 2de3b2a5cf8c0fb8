//! Where a command looks for dead letters.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use aws_config::SdkConfig;
use clap::{ArgGroup, Args};
use shardmill_cause::code;
use shardmill_engine::DeadLetter;
use shardmill_producer::BatchSender;
use shardmill_stream::Kinesis;
use tokio::sync::OnceCell;

use crate::aws::{self, Clients};
use crate::cli::{Failure, text};
use crate::config::{self, Config, DeadLetters, Log, LogFormat};
use crate::dead_letters::Marks;
use crate::dead_letters::identity::Identity;
use crate::dead_letters::read::{Place, unreadable_folder};
use crate::{telemetry, unix_ms};

/// Where letters are, as it is written on the command line.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("place").args(["config", "folder", "stream"]).required(true).multiple(true))]
pub(super) struct Arguments {
    /// The configuration file, whose [processors.NAME.dead-letters] say where letters are, and [aws] how AWS is
    /// reached. Letters of other applications are passed over.
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
    config: Option<Config>,
    aws: config::Aws,
    sdk: OnceCell<SdkConfig>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Named {
    Folder(PathBuf),
    Stream(String),
}

/// Which letters have been sent again, place by place.
#[derive(Default)]
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
        let aws = config.as_ref().map(|config| config.aws.clone()).unwrap_or_default();
        Ok(Places { named: each_once(named), marks: self.marks.clone(), config, aws, sdk: OnceCell::new() })
    }
}

fn configured(config: &Config, processor: Option<&str>) -> Result<Vec<Named>, Failure> {
    if let Some(name) = processor
        && !config.processors.contains_key(name)
    {
        let names: Vec<&str> = config.processors.keys().map(String::as_str).collect();
        return Err(Failure::configuration(format!("the configuration has no processor `{name}`"))
            .code(code::dead_letters::NO_PLACE)
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
            .code(code::dead_letters::NO_PLACE)
            .help("add a table [processors.NAME.dead-letters], or name a place with --folder or --stream"));
    }
    Ok(named.into_iter().collect())
}

/// A folder that is called by two names is looked at once: it would lock itself out.
fn each_once(named: Vec<Named>) -> Vec<Named> {
    let mut met = HashSet::new();
    let is_first = |named: &Named| match named {
        Named::Folder(path) => std::fs::metadata(path).map_or(true, |found| met.insert((found.dev(), found.ino()))),
        Named::Stream(_) => true,
    };
    named.into_iter().filter(is_first).collect()
}

// === impl Places ===

impl Places {
    /// The application whose letters are looked at, if it is not all.
    pub(super) fn application(&self) -> Option<&str> {
        self.config.as_ref().map(|config| config.application.as_str())
    }

    /// Whether a letter's record may go back without anybody saying where: whoever can write to a place can write a letter
    /// that names any stream. Without a configuration the letter is all that there is. What a processor has made of a record
    /// never came from a stream.
    pub(super) fn may_return(&self, letter: &DeadLetter) -> bool {
        if letter.hops > 0 {
            return false;
        }
        let Some(config) = &self.config else { return true };
        *config.application == *letter.application
            && config.processors.get(&*letter.processor).is_some_and(|found| found.reads(&letter.stream_arn))
    }

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

    /// How the first of some places is called, by its number.
    pub(super) fn name(&self, places: &BTreeSet<usize>) -> String {
        match places.first().map(|place| &self.named[*place]) {
            Some(Named::Folder(folder)) => folder.display().to_string(),
            Some(Named::Stream(stream)) => stream.clone(),
            None => String::new(),
        }
    }

    /// What is known of letters that have been sent again.
    pub(super) fn marks(&self) -> Result<Book, Failure> {
        self.book(|path| Marks::read(path).map_err(|error| unmarked(path, &error)))
    }

    /// The same, as far as it can be read: letters can be looked at without.
    pub(super) fn readable_marks(&self) -> Result<Book, Failure> {
        self.book(|path| {
            Ok(Marks::read(path).unwrap_or_else(|error| {
                let file = path.display();
                tracing::warn!(%file, %error, "which letters have been sent again cannot be read, and is not shown");
                Marks::default()
            }))
        })
    }

    /// The same, held to note more.
    pub(super) fn hold_marks(&self) -> Result<Book, Failure> {
        self.book(|path| Marks::hold(path).map_err(|error| unmarked(path, &error)))
    }

    fn book(&self, open: impl Fn(&Path) -> Result<Marks, Failure>) -> Result<Book, Failure> {
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
        options: shardmill_producer::BatchOptions,
    ) -> Result<BatchSender, Failure> {
        let client = self.clients(stream).await?.producer_of(stream).clone();
        let metrics = shardmill_producer::Metrics::default();
        Ok(BatchSender::new(client, stream.to_owned(), options, metrics, rand::random()))
    }

    async fn clients(&self, stream: &str) -> Result<Clients, Failure> {
        let sdk = self.sdk.get_or_init(|| aws::load(&self.aws)).await;
        if sdk.region().is_none() {
            return Err(crate::Error::NoRegion.into());
        }
        Ok(Clients::new(sdk, &self.aws).for_streams([stream], sdk, &self.aws))
    }
}

#[cfg(test)]
impl Places {
    /// None, with streams of a region.
    pub(super) fn of_region(region: &str) -> Self {
        let aws = config::Aws { region: Some(region.to_owned()), ..Default::default() };
        Self { named: Vec::new(), marks: None, config: None, aws, sdk: OnceCell::new() }
    }
}

// === impl Book ===

impl Book {
    /// Whether a letter's record has been sent again, whichever place it was found in then.
    pub(super) fn contains(&self, identity: &Identity) -> bool {
        self.marks.iter().any(|marks| marks.contains(identity))
    }

    /// Whether a place with its letter does not say so yet.
    pub(super) fn lacks(&self, identity: &Identity, places: &BTreeSet<usize>) -> bool {
        self.files_of(places).any(|file| !self.marks[file].contains(identity))
    }

    /// Notes what has been sent, in each place with its letters that does not say so yet.
    pub(super) fn note<'q>(
        &mut self,
        sent: impl Iterator<Item = (&'q Identity, &'q BTreeSet<usize>)>,
        to: &str,
    ) -> Result<(), Failure> {
        let mut by_file: BTreeMap<usize, BTreeSet<Identity>> = BTreeMap::new();
        for (identity, places) in sent {
            for file in self.files_of(places).filter(|file| !self.marks[*file].contains(identity)) {
                by_file.entry(file).or_default().insert(*identity);
            }
        }
        by_file.into_iter().try_for_each(|(file, sent)| {
            self.marks[file].add(&sent, to, unix_ms::now()).map_err(|error| {
                let error = text::line(&error);
                Failure::running(format!("{} records were sent, and that cannot be noted in {error}", sent.len()))
                    .code(code::dead_letters::MARKS)
                    .help("the next replay sends them once more")
            })
        })
    }

    /// The files that hold the marks of places, by their numbers.
    fn files_of(&self, places: &BTreeSet<usize>) -> impl Iterator<Item = usize> {
        let one = self.is_one.then_some(0);
        one.into_iter().chain(if self.is_one { BTreeSet::new() } else { places.clone() })
    }
}

fn unmarked(path: &Path, error: &std::io::Error) -> Failure {
    let message = format!("which letters have been sent again is noted in {}: {error}", path.display());
    if error.kind() == std::io::ErrorKind::ResourceBusy {
        return Failure::unavailable(message).code(code::dead_letters::MARKS).help("wait for it to end");
    }
    Failure::configuration(message).code(code::dead_letters::MARKS).help("name another file with --marks FILE")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dead_letters::any_letter;

    #[test]
    fn a_folder_with_two_names_is_looked_at_once() {
        let home = tempfile::tempdir().unwrap();
        let [folder, link, other] = ["a", "b", "c"].map(|name| home.path().join(name));
        std::fs::create_dir(&folder).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        let named = [folder.clone(), link, folder.join("../a"), other.clone(), home.path().join("nowhere")];
        let once = each_once(named.into_iter().map(Named::Folder).collect());
        assert_eq!(once, [folder, other, home.path().join("nowhere")].map(Named::Folder));
    }

    #[test]
    fn letters_send_records_back_where_their_processor_reads_and_nowhere_else() {
        let text = "application = \"shop\"\n[processors.enrich]\nstream = \"orders\"\nplugin = \"p.wasm\"\n";
        let config = config::parse("test.toml", text, Path::new("")).unwrap();
        let places = Places {
            named: Vec::new(),
            marks: None,
            aws: config.aws.clone(),
            config: Some(config),
            sdk: OnceCell::new(),
        };
        let of = |application: &str, processor: &str, stream: &str| DeadLetter {
            application: application.into(),
            processor: processor.into(),
            stream: "orders".into(),
            stream_arn: format!("arn:aws:kinesis:eu-west-1:123456789012:stream/{stream}").into(),
            ..any_letter(1)
        };
        assert!(places.may_return(&of("shop", "enrich", "orders")));
        for forged in [
            of("shop", "enrich", "payments"),
            of("shop", "audit", "orders"),
            of("bank", "enrich", "orders"),
            DeadLetter { stream_arn: "payments".into(), ..of("shop", "enrich", "orders") },
        ] {
            assert!(!places.may_return(&forged), "{forged:?}");
        }
        assert!(Places { config: None, ..places }.may_return(&of("shop", "enrich", "payments")));
    }
}
