//! Spools that are wrong: nothing in them is changed, and nothing is sent.

use std::os::unix::fs::PermissionsExt as _;

use shardmill_cause::code::{Code, command, spool};
use shardmill_record::UserRecord;
use shardmill_spool::{Metrics, Options, Spool};
use shardmill_tests::Services;

use crate::row::{Expected, Folder, Row, finish, payloads};

/// A spool with a record of the stream `input`, closed.
async fn filled() -> Folder {
    let folder = Folder::new();
    let spool = Spool::open(folder.path(), Options::default(), Metrics::default()).await.expect("a spool");
    let record = UserRecord { partition_key: "key".to_owned(), explicit_hash_key: None, data: "data".into() };
    spool.store("input", vec![record]).await.expect("it stores");
    spool.close().await.expect("it closes");
    folder
}

pub(crate) async fn rows() -> Vec<Row> {
    let services = Services::with_streams(1, 1).await;
    let mut rows = vec![of_a_folder_in_use(&services).await];
    let open = filled().await;
    let mode = |mode| std::fs::set_permissions(open.path(), std::fs::Permissions::from_mode(mode)).expect("a mode");
    mode(0o777);
    rows.push(refused(&services, "a folder that everybody can write", &open, &["drain"], 78, spool::NOT_PRIVATE).await);
    mode(0o700);
    rows.push(
        refused(
            &services,
            "a stream that is not in it",
            &open,
            &["drop", "--stream", "nowhere", "--yes"],
            1,
            command::NO_SUCH,
        )
        .await,
    );
    rows.push(
        refused(
            &services,
            "records to drop, and nobody to ask",
            &open,
            &["drop", "--stream", "input"],
            1,
            command::NOT_ASKED,
        )
        .await,
    );
    let empty = Folder::new();
    rows.push(refused(&services, "a folder without a spool", &empty, &["list"], 78, spool::NOT_THERE).await);
    let damaged = filled().await;
    let file = damaged.path().join("spool.db");
    let mut bytes = std::fs::read(&file).expect("the spool's file");
    bytes.truncate(bytes.len() / 2);
    bytes[1000..].fill(7);
    std::fs::write(&file, bytes).expect("a damaged file");
    rows.push(refused(&services, "a file that was cut and overwritten", &damaged, &["list"], 1, spool::DAMAGED).await);
    rows
}

async fn refused(services: &Services, given: &str, folder: &Folder, arguments: &[&str], exit: i32, code: Code) -> Row {
    let files = folder.files();
    let place = folder.at("");
    let finished = finish(services, &[&["spool"][..], arguments, &["--folder", &place]].concat()).await;
    // Files that a database makes for the time that it is open come and go; the records are in this one.
    let database = folder.path().join("spool.db");
    assert_eq!(folder.files().get(&database), files.get(&database), "{given}");
    assert!(payloads(services, "input").await.is_empty(), "{given}");
    Row::of(given, &finished, Expected { exit, code }, "its file is as it was, and nothing was sent")
}

async fn of_a_folder_in_use(services: &Services) -> Row {
    let folder = filled().await;
    let held = Spool::open(folder.path(), Options::default(), Metrics::default()).await.expect("the spool");
    let place = folder.at("");
    let finished = finish(services, &["spool", "drain", "--folder", &place]).await;
    assert_eq!(held.depth_of("input").records, 1);
    held.close().await.expect("it closes");
    assert!(payloads(services, "input").await.is_empty());
    let expected = Expected { exit: 69, code: spool::IN_USE };
    let row = Row::of("a spool that another process has", &finished, expected, "its record is in it, and was not sent");
    let says = row.says.split(" by process").next().unwrap_or_default().to_owned() + " by process …";
    Row { says, ..row }
}
