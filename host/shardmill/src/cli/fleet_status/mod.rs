//! `shardmill status --config FILE`: a whole fleet, from its tables alone. It works when no worker lives.

mod show;

use std::collections::BTreeMap;
use std::path::Path;

use futures::future::join_all;
use shardmill_lease::store::{InvalidRow, Store as _};
use shardmill_lease::{Lease, WorkerId};
use tokio::time::Instant;

use super::plugin::fleet::{Listed, Place, failed};
use super::{Failure, output, text};
use crate::fleet::life::{self, Life};
use crate::fleet::outlook::{self, Member};
use crate::fleet::{documents, home};

/// One consumer.
struct Seen {
    consumer: String,
    lease_table: String,
    members: Vec<Member>,
    leader: Option<WorkerId>,
    /// By their keys.
    leases: Vec<Lease>,
    invalid: Vec<InvalidRow>,
    plugins: Vec<Listed>,
    /// Processors of which it cannot be seen what is wanted, and why.
    unread: Vec<(String, Failure)>,
}

pub(super) async fn status(config: &Path, json: bool) -> Result<(), Failure> {
    let place = &Place::open(config).await?;
    let consumers = place.config.processors.values().filter_map(|processor| {
        let table = processor.lease_table.as_deref()?;
        Some(async move { (processor.name.clone(), look(place, &processor.name, table).await) })
    });
    let looked = async { Ok(join_all(consumers).await) };
    let (mut seen, mut unseen) = (Vec::new(), Vec::new());
    // What is known is shown, whatever is not.
    for (consumer, looked) in place.unless_stopped(looked).await? {
        match looked {
            Ok(consumer) => seen.push(consumer),
            Err(failure) => unseen.push((consumer, failure)),
        }
    }
    let application = &place.config.application;
    if json {
        output::line(text::json(&show::json(application, &seen, &unseen)));
    } else {
        output::bytes(show::text(application, &seen).as_bytes());
    }
    let unread = seen.into_iter().flat_map(|consumer| consumer.unread);
    Failure::first(unseen.into_iter().chain(unread).map(|(_name, failure)| failure))
}

async fn look(place: &Place, consumer: &str, lease_table: &str) -> Result<Seen, Failure> {
    let tables = place.tables(lease_table);
    let processors = home::at_home(&place.config, consumer);
    let documents = join_all(processors.iter().map(|processor| documents::read(&tables, &processor.name)));
    let documents = async { Ok(documents.await) };
    let workers = async { life::survey(&tables, &place.config.leases).await.map_err(failed) };
    let leases = async { tables.list().await.map_err(failed) };
    let ((roster, lives), leases, documents) = tokio::try_join!(workers, leases, documents)?;
    let members = outlook::members(&roster, &lives, Instant::now());
    let (mut plugins, mut unread) = (Vec::new(), Vec::new());
    for (processor, read) in processors.iter().zip(documents) {
        let processor = processor.name.clone();
        match read {
            Ok(read) => plugins.push(Listed { processor, deployment: read.deployment, members: members.clone() }),
            Err(error) => unread.push((processor, failed(error))),
        }
    }
    let mut sorted = leases.leases;
    sorted.sort_by(|left, right| left.key.cmp(&right.key));
    Ok(Seen {
        consumer: consumer.to_owned(),
        lease_table: lease_table.to_owned(),
        plugins,
        unread,
        members,
        leader: roster.leader,
        leases: sorted,
        invalid: leases.invalid,
    })
}

// === impl Seen ===

impl Seen {
    /// How many leases each worker has, of shards that are not done.
    fn held(&self) -> BTreeMap<&WorkerId, usize> {
        let mut held = BTreeMap::new();
        for owner in self.leases.iter().filter(|lease| !lease.is_complete()).filter_map(|lease| lease.owner.as_ref()) {
            *held.entry(owner).or_default() += 1;
        }
        held
    }

    /// How far its owner says that it is behind the tip, in milliseconds. What one said that is silent now is old.
    fn lag(&self, lease: &Lease) -> Option<u64> {
        let owner = lease.owner.as_ref()?;
        let member = self.members.iter().find(|member| member.id == *owner && member.life != Life::Silent)?;
        member.note.lags.get(lease.key.as_str()).copied()
    }
}
