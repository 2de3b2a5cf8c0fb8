use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use async_trait::async_trait;
use shardmill_lease::store::memory::{Call, Fault, Memory};
use tempfile::TempDir;

use super::*;
use crate::fleet::deployment::Order;
use crate::fleet::share::Share;

const PACE: Duration = Duration::from_secs(4);

/// A worker whose processor `copy` runs whatever it is given.
struct Worker {
    running: Mutex<Running>,
    refusals: Mutex<VecDeque<String>>,
    /// What was refused and is told of.
    refused: Mutex<Option<Digest>>,
}

impl Worker {
    /// Somebody lets this worker alone run something.
    fn is_told(&self, module: &str) -> Digest {
        let digest = Digest::of(module.as_bytes());
        self.running.lock().unwrap().digest = digest;
        digest
    }

    /// The watch of the file has loaded what is in it now.
    fn takes_its_file(&self, module: &str) {
        let file = self.is_told(module);
        self.running.lock().unwrap().file = file;
    }
}

#[async_trait]
impl Switch for Worker {
    async fn switch(&self, _processor: &str, module: Fetched) -> Result<(), String> {
        if let Some(refusal) = self.refusals.lock().unwrap().pop_front() {
            *self.refused.lock().unwrap() = Some(module.digest);
            return Err(refusal);
        }
        assert_eq!(Digest::of(&module.bytes), module.digest);
        self.running.lock().unwrap().digest = module.digest;
        Ok(())
    }

    fn running(&self, processor: &str) -> Option<Running> {
        (processor == "copy").then(|| self.running.lock().unwrap().clone())
    }

    fn forget_refused(&self, _processor: &str, digest: &Digest) {
        self.refused.lock().unwrap().take_if(|refused| refused == digest);
    }
}

/// A fleet's table, and a folder with files.
struct Scene {
    table: Memory,
    folder: TempDir,
    board: Board,
}

impl Scene {
    fn new() -> Self {
        Self { table: Memory::new(), folder: tempfile::tempdir().unwrap(), board: Board::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts a module into a file; its digest.
    fn module(&self, file: &str, module: &str) -> Digest {
        std::fs::write(self.path(file), module).unwrap();
        Digest::of(module.as_bytes())
    }

    /// A worker that was started with what is in this file.
    fn worker(&self, file: &str) -> Arc<Worker> {
        let path = self.path(file);
        let digest = Digest::of(&std::fs::read(&path).unwrap());
        let running = Running { digest, since: SystemTime::UNIX_EPOCH, path, file: digest };
        Arc::new(Worker { running: Mutex::new(running), refusals: Mutex::default(), refused: Mutex::default() })
    }

    fn follower(&self, worker: &Arc<Worker>) -> Follower {
        self.follower_on(worker, &self.table)
    }

    fn follower_on(&self, worker: &Arc<Worker>, table: &Memory) -> Follower {
        let parts = Parts {
            processor: "copy".to_owned(),
            worker: "w".to_owned(),
            sidecar: Arc::new(table.clone()),
            switch: Arc::clone(worker) as Arc<dyn Switch>,
            fetcher: Fetcher::new(),
            shelf: Shelf::beside(Some(self.folder.path())),
            board: self.board.clone(),
            metrics: Metrics::default(),
            leads: Box::new(|| true),
            pace: PACE,
        };
        Follower::new(parts).unwrap()
    }

    /// An operator asks for what is in this file.
    async fn order(&self, digest: Digest, source: &str, share: u8) {
        let asked = Asked { by: "operator".to_owned(), at: 1 };
        let found = documents::read(&self.table, "copy").await.unwrap();
        let order = Order {
            digest,
            source: self.path(source).display().to_string(),
            share: Share::try_from(share).unwrap(),
            is_rollback: false,
        };
        let change = |deployment: &mut Deployment| {
            deployment.order(order.clone(), &["w"], &asked);
            true
        };
        documents::change(&self.table, "copy", found, change).await.unwrap();
    }

    async fn deployment(&self) -> Deployment {
        documents::read(&self.table, "copy").await.unwrap().deployment
    }

    fn trouble(&self) -> Option<String> {
        self.board.standing("copy").unwrap().trouble
    }
}

fn runs(worker: &Worker) -> Digest {
    worker.running.lock().unwrap().digest
}

#[tokio::test]
async fn what_is_wanted_is_fetched_and_run_and_again_after_a_restart_with_the_same_file() {
    let scene = Scene::new();
    let one = scene.module("own.wasm", "one");
    let two = scene.module("two.wasm", "two");
    let worker = scene.worker("own.wasm");
    let mut follower = scene.follower(&worker);
    follower.look().await;
    assert_eq!(runs(&worker), one);
    scene.order(two, "two.wasm", 100).await;
    follower.look().await;
    assert_eq!(runs(&worker), two);
    assert!(scene.board.standing("copy").unwrap().is_as_wanted());
    // The place from which it came is not asked again.
    std::fs::remove_file(scene.path("two.wasm")).unwrap();
    let restarted = scene.worker("own.wasm");
    scene.follower(&restarted).look().await;
    assert_eq!(runs(&restarted), two);
    // A new image is newer, also when it is started again.
    let three = scene.module("own.wasm", "three");
    for _ in 0..2 {
        let replaced = scene.worker("own.wasm");
        scene.follower(&replaced).look().await;
        assert_eq!(runs(&replaced), three);
    }
    follower.look().await;
    assert_eq!(runs(&worker), two, "one that was not replaced goes on");
}

#[tokio::test]
async fn a_file_that_changes_under_a_running_worker_counts_as_a_new_one_and_other_orders_to_the_worker_are_left_alone()
{
    let scene = Scene::new();
    scene.module("own.wasm", "one");
    let two = scene.module("two.wasm", "two");
    let worker = scene.worker("own.wasm");
    let mut follower = scene.follower(&worker);
    scene.order(two, "two.wasm", 100).await;
    follower.look().await;
    assert_eq!(runs(&worker), two);
    let three = scene.module("own.wasm", "three");
    worker.takes_its_file("three");
    follower.look().await;
    assert_eq!(runs(&worker), three);
    assert!(scene.deployment().await.is_newer(&three));
    assert!(scene.board.standing("copy").unwrap().is_as_wanted());
    let other = worker.is_told("other");
    follower.look().await;
    assert_eq!(runs(&worker), other);
    assert!(scene.board.standing("copy").unwrap().is_local);
    // The next command is for this worker too.
    scene.order(two, "two.wasm", 100).await;
    follower.look().await;
    assert_eq!(runs(&worker), two);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_cannot_be_had_is_said_and_tried_again_ever_more_seldom() {
    let scene = Scene::new();
    let one = scene.module("own.wasm", "one");
    let worker = scene.worker("own.wasm");
    let mut follower = scene.follower(&worker);
    follower.look().await;
    let two = Digest::of(b"two");
    scene.order(two, "two.wasm", 100).await;
    follower.look().await;
    assert_eq!(runs(&worker), one);
    assert!(scene.trouble().unwrap().contains("two.wasm cannot be read"), "{:?}", scene.trouble());
    // Another module is there; nobody looks yet.
    scene.module("two.wasm", "another");
    follower.look().await;
    assert!(scene.trouble().unwrap().contains("cannot be read"));
    tokio::time::advance(PACE * 2).await;
    follower.look().await;
    assert!(scene.trouble().unwrap().contains("another module"), "{:?}", scene.trouble());
    assert_eq!(runs(&worker), one);
    // And then the right one, which is refused once.
    scene.module("two.wasm", "two");
    worker.refusals.lock().unwrap().push_back("it does not start".to_owned());
    tokio::time::advance(PACE * 4).await;
    follower.look().await;
    assert_eq!(scene.trouble().as_deref(), Some("it does not start"));
    assert_eq!(*worker.refused.lock().unwrap(), Some(two));
    tokio::time::advance(PACE * 8).await;
    follower.look().await;
    assert_eq!((runs(&worker), scene.trouble()), (two, None));
    // Another decision is tried at once.
    let three = Digest::of(b"three");
    scene.order(three, "three.wasm", 100).await;
    follower.look().await;
    assert!(scene.trouble().is_some());
    scene.module("four.wasm", "four");
    scene.order(Digest::of(b"four"), "four.wasm", 100).await;
    follower.look().await;
    assert_eq!((runs(&worker), scene.trouble()), (Digest::of(b"four"), None));
}

#[tokio::test]
async fn a_table_that_does_not_answer_changes_nothing_and_what_runs_is_told_all_the_same() {
    let scene = Scene::new();
    let one = scene.module("own.wasm", "one");
    let two = scene.module("two.wasm", "two");
    let is_broken = Arc::new(AtomicBool::new(true));
    let broken = Arc::clone(&is_broken);
    let table = scene.table.with_faults(move |_call| match broken.load(Ordering::SeqCst) {
        true => Fault::Throttle,
        false => Fault::None,
    });
    let worker = scene.worker("own.wasm");
    let mut follower = scene.follower_on(&worker, &table);
    follower.look().await;
    assert_eq!(scene.board.standing("copy").map(|standing| standing.running), Some(one));
    scene.order(two, "two.wasm", 100).await;
    follower.look().await;
    assert_eq!(runs(&worker), one);
    is_broken.store(false, Ordering::SeqCst);
    follower.look().await;
    assert_eq!(runs(&worker), two);
    is_broken.store(true, Ordering::SeqCst);
    follower.look().await;
    assert_eq!(runs(&worker), two, "what was wanted last still is");
}

#[tokio::test]
async fn what_a_worker_is_told_by_itself_before_there_is_a_table_holds() {
    let scene = Scene::new();
    scene.module("own.wasm", "one");
    let is_there = Arc::new(AtomicBool::new(false));
    let there = Arc::clone(&is_there);
    let table = scene.table.with_faults(move |_call| match there.load(Ordering::SeqCst) {
        true => Fault::None,
        false => Fault::Throttle,
    });
    let worker = scene.worker("own.wasm");
    let mut follower = scene.follower_on(&worker, &table);
    follower.look().await;
    let other = worker.is_told("other");
    is_there.store(true, Ordering::SeqCst);
    follower.look().await;
    assert_eq!(runs(&worker), other, "that the file is known now is no command");
    assert!(scene.deployment().await.history().entries().len() == 1);
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_is_told_while_it_cannot_have_what_is_wanted_holds_until_the_next_command() {
    let scene = Scene::new();
    scene.module("own.wasm", "one");
    let worker = scene.worker("own.wasm");
    let mut follower = scene.follower(&worker);
    let two = Digest::of(b"two");
    scene.order(two, "two.wasm", 100).await;
    follower.look().await;
    assert!(scene.trouble().is_some());
    let other = worker.is_told("other");
    scene.module("two.wasm", "two");
    for _ in 0..3 {
        tokio::time::advance(LONGEST_WAIT).await;
        follower.look().await;
    }
    let standing = scene.board.standing("copy").unwrap();
    assert_eq!((runs(&worker), standing.is_local, standing.trouble), (other, true, None));
    scene.order(two, "two.wasm", 100).await;
    follower.look().await;
    assert_eq!(runs(&worker), two);
}

#[tokio::test]
async fn what_was_loaded_while_a_module_came_is_not_undone_by_it() {
    let scene = Scene::new();
    let one = scene.module("own.wasm", "one");
    let two = scene.module("two.wasm", "two");
    let worker = scene.worker("own.wasm");
    let mut follower = scene.follower(&worker);
    follower.look().await;
    scene.order(two, "two.wasm", 100).await;
    follower.read().await.unwrap();
    let other = worker.is_told("other");
    follower.attempt(follower.decision()).await;
    assert_eq!(runs(&worker), other);
    worker.is_told("one");
    follower.running();
    worker.takes_its_file("three");
    scene.module("own.wasm", "three");
    follower.attempt(follower.decision()).await;
    follower.look().await;
    assert_eq!(runs(&worker), Digest::of(b"three"));
    assert!(scene.deployment().await.is_newer(&Digest::of(b"three")) && !scene.deployment().await.is_newer(&one));
}

#[tokio::test]
async fn a_file_that_becomes_what_is_deployed_already_is_known_from_then_on_and_not_from_the_next_start() {
    let scene = Scene::new();
    scene.module("own.wasm", "one");
    let two = scene.module("two.wasm", "two");
    let worker = scene.worker("own.wasm");
    let mut follower = scene.follower(&worker);
    scene.order(two, "two.wasm", 100).await;
    follower.look().await;
    // Somebody puts it into the file, so that it stays.
    scene.module("own.wasm", "two");
    worker.takes_its_file("two");
    follower.look().await;
    let three = scene.module("three.wasm", "three");
    scene.order(three, "three.wasm", 100).await;
    let restarted = scene.worker("own.wasm");
    scene.follower(&restarted).look().await;
    assert_eq!(runs(&restarted), three);
}

#[tokio::test]
async fn a_worker_goes_back_to_what_was_in_its_file_when_another_module_is_there() {
    let scene = Scene::new();
    let one = scene.module("own.wasm", "one");
    let worker = scene.worker("own.wasm");
    let mut follower = scene.follower(&worker);
    follower.look().await;
    follower.keep_file().await;
    scene.module("own.wasm", "two");
    worker.takes_its_file("two");
    follower.look().await;
    scene.order(one, "own.wasm", 100).await;
    follower.look().await;
    assert_eq!((runs(&worker), scene.trouble()), (one, None));
}

#[tokio::test]
async fn a_refusal_is_told_until_what_was_refused_is_not_wanted_any_more() {
    let scene = Scene::new();
    let one = scene.module("own.wasm", "one");
    let two = scene.module("two.wasm", "two");
    let worker = scene.worker("own.wasm");
    let mut follower = scene.follower(&worker);
    follower.look().await;
    worker.refusals.lock().unwrap().push_back("it does not start".to_owned());
    scene.order(two, "two.wasm", 100).await;
    follower.look().await;
    assert_eq!(*worker.refused.lock().unwrap(), Some(two));
    follower.look().await;
    assert_eq!(*worker.refused.lock().unwrap(), Some(two));
    scene.order(one, "own.wasm", 100).await;
    follower.look().await;
    assert_eq!((runs(&worker), *worker.refused.lock().unwrap()), (one, None));
}

#[tokio::test]
async fn a_document_of_a_later_version_is_left_alone_and_what_runs_goes_on() {
    let scene = Scene::new();
    let one = scene.module("own.wasm", "one");
    let two = scene.module("two.wasm", "two");
    let worker = scene.worker("own.wasm");
    let mut follower = scene.follower(&worker);
    scene.order(two, "two.wasm", 100).await;
    follower.look().await;
    let table: &dyn Sidecar = &scene.table;
    let key = crate::fleet::home::key("copy");
    let written = table.document(&key).await.unwrap().unwrap();
    let later = serde_json::json!({ "format": 2, "wanted": { "digest": one.to_string() } });
    assert!(table.put_document(&key, &later, Some(written.version)).await.unwrap());
    follower.look().await;
    assert_eq!((runs(&worker), follower.is_unread), (two, true));
    let restarted = scene.worker("own.wasm");
    scene.follower(&restarted).look().await;
    assert_eq!(runs(&restarted), one, "its own file");
    assert_eq!(table.document(&key).await.unwrap().unwrap().body, later);
}

#[tokio::test]
async fn a_document_is_written_once_for_a_file_and_not_at_every_look() {
    let scene = Scene::new();
    scene.module("own.wasm", "one");
    let writes = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&writes);
    let table = scene.table.with_faults(move |call| {
        if matches!(call, Call::PutDocument(_)) {
            *counted.lock().unwrap() += 1;
        }
        Fault::None
    });
    for _ in 0..3 {
        let mut follower = scene.follower_on(&scene.worker("own.wasm"), &table);
        for _ in 0..3 {
            follower.look().await;
        }
    }
    assert_eq!(*writes.lock().unwrap(), 1);
}

#[tokio::test]
async fn the_leader_lets_another_worker_have_it_when_those_have_gone_that_were_to_be_first() {
    let scene = Scene::new();
    let one = scene.module("own.wasm", "one");
    let two = scene.module("two.wasm", "two");
    let worker = scene.worker("own.wasm");
    let mut follower = scene.follower(&worker);
    follower.look().await;
    // Of these two `w` is not the one.
    let found = documents::read(&scene.table, "copy").await.unwrap();
    let source = scene.path("two.wasm").display().to_string();
    let order = Order { digest: two, source, share: Share::try_from(1).unwrap(), is_rollback: false };
    let asked = Asked { by: "operator".to_owned(), at: 1 };
    let first = (0..).map(|number| format!("gone-{number}")).find(|other| {
        let mut deployment = found.deployment.clone();
        deployment.order(order.clone(), &["w", other], &asked);
        !deployment.includes("w")
    });
    let first = first.unwrap();
    let ordered = documents::change(&scene.table, "copy", found, |deployment| {
        deployment.order(order.clone(), &["w", &first], &asked);
        true
    });
    ordered.await.unwrap();
    let row = serde_json::json!({ "run": "r", "joined": 1, "is_leaving": false, "max": null });
    shardmill_lease::store::Sidecar::put_document(&scene.table, "fleet/worker/w", &row, None).await.unwrap();
    for version in 1..=u64::from(LOOKS * 2) {
        assert_eq!(runs(&worker), one, "before look {version}");
        shardmill_lease::store::Sidecar::put_document(&scene.table, "fleet/worker/w", &row, Some(version))
            .await
            .unwrap();
        follower.look().await;
    }
    follower.look().await;
    assert_eq!(runs(&worker), two);
    assert!(scene.deployment().await.includes(&first));
}
