//! Batches that came out of a spool.

use shardmill_record::UserRecord;
use shardmill_spool::{Answer, Fate};

use crate::{BatchSender, Error, Permit};

// === impl BatchSender ===

impl BatchSender {
    /// Sends records that came out of a spool, all that can be sent: what has become of each.
    pub async fn send_spooled(&self, records: Vec<UserRecord>, permit: &Permit) -> Answer<Error> {
        let mut fates = vec![Fate::Kept; records.len()];
        let mut left: Vec<(usize, UserRecord)> = records.into_iter().enumerate().collect();
        loop {
            let records = left.iter().map(|(_, record)| record.clone()).collect();
            match self.send(records, permit).await {
                Ok(_sent) => {
                    left.iter().for_each(|(index, _)| fates[*index] = Fate::Sent);
                    return Answer::Partly(fates, None);
                }
                // Nothing was sent; the others can be.
                Err(Error::Refused { index, reason }) => {
                    let (index, _record) = left.remove(index);
                    fates[index] = Fate::Refused(reason.to_string());
                }
                Err(error) => {
                    for ((index, _), sent) in left.iter().zip(error.sent()) {
                        if sent.is_some() {
                            fates[*index] = Fate::Sent;
                        }
                    }
                    return Answer::Partly(fates, Some(error));
                }
            }
        }
    }
}
