use proptest::prelude::*;
use serde_json::json;

use super::*;

fn digest(name: &str) -> Digest {
    Digest::of(name.as_bytes())
}

fn asked(at: u64) -> Asked {
    Asked { by: "me".to_owned(), at }
}

fn order(name: &str, share: u8) -> Order {
    let share = Share::try_from(share).unwrap();
    Order { digest: digest(name), source: format!("/plugins/{name}.wasm"), share, is_rollback: false }
}

/// The name of what a worker should run, out of a few.
fn aim(deployment: &Deployment, worker: &str, file: &str) -> &'static str {
    let aim = deployment.aim(worker, &digest(file));
    ["one", "two", "three", "four", "image"].into_iter().find(|name| digest(name) == aim.digest).unwrap()
}

/// A fleet whose workers were all started with the file `one`.
fn fleet() -> Deployment {
    let mut deployment = Deployment::new();
    assert!(deployment.learn(&digest("one"), "/app/plugin.wasm", &asked(1)));
    deployment
}

#[test]
fn without_a_command_each_worker_runs_its_file() {
    let mut deployment = fleet();
    assert_eq!(aim(&deployment, "w", "one"), "one");
    assert!(deployment.learn(&digest("image"), "/app/plugin.wasm", &asked(2)));
    assert_eq!((aim(&deployment, "w", "one"), aim(&deployment, "w", "image")), ("one", "image"));
    assert!(!deployment.learn(&digest("one"), "/app/plugin.wasm", &asked(3)), "there is nothing to note");
}

#[test]
fn a_known_file_gives_way_to_what_was_deployed_and_a_new_one_does_not() {
    let mut deployment = fleet();
    deployment.order(order("two", 100), &["w"], &asked(2));
    assert_eq!(aim(&deployment, "w", "one"), "two");
    assert_eq!(deployment.aim("w", &digest("one")).source, Some("/plugins/two.wasm"));
    assert!(!deployment.is_newer(&digest("one")));
    // A worker with a new image, before and after that is noted.
    assert_eq!(aim(&deployment, "w", "image"), "image");
    let before = deployment.clone();
    assert!(deployment.learn(&digest("image"), "/app/plugin.wasm", &asked(3)));
    assert!(deployment.is_decided_since(&before) && !deployment.is_another_wanted(&before), "no operator did that");
    assert_eq!(aim(&deployment, "w", "image"), "image");
    assert!(deployment.is_newer(&digest("image")));
    // One that has not been replaced yet goes on, also when it is started again.
    assert_eq!(aim(&deployment, "w", "one"), "two");
    // The next command is newer than that image.
    let before = deployment.clone();
    deployment.order(order("two", 100), &["w"], &asked(4));
    assert!(deployment.is_another_wanted(&before), "the same once more");
    assert_eq!(aim(&deployment, "w", "image"), "two");
    let whys: Vec<&str> = deployment.history().entries().iter().map(|entry| entry.why.as_str()).collect();
    assert_eq!(whys, ["file", "deploy", "file", "deploy"]);
}

#[test]
fn a_command_that_was_there_before_any_file_was_known_is_the_newer_one() {
    let mut deployment = Deployment::new();
    deployment.order(order("two", 100), &[], &asked(1));
    assert!(deployment.learn(&digest("one"), "/app/plugin.wasm", &asked(2)));
    assert_eq!(aim(&deployment, "w", "one"), "two");
    // And a rollback knows what was there before.
    assert_eq!(deployment.history().before().map(|entry| entry.digest), Ok(digest("one")));
}

#[test]
fn a_version_that_is_the_workers_own_file_comes_from_there() {
    let mut deployment = fleet();
    deployment.order(order("one", 100), &["w"], &asked(2));
    let aim = deployment.aim("w", &digest("one"));
    assert_eq!((aim.source, aim.revision), (None, 1));
}

#[test]
fn those_out_of_the_share_run_what_all_ran_before() {
    let workers = ["a", "b", "c", "d"];
    let mut deployment = fleet();
    let run = |deployment: &Deployment| workers.map(|worker| aim(deployment, worker, "one"));
    let count = |deployment: &Deployment, name| run(deployment).iter().filter(|found| **found == name).count();
    deployment.order(order("two", 25), &workers, &asked(2));
    assert_eq!((count(&deployment, "two"), count(&deployment, "one")), (1, 3));
    deployment.order(order("two", 100), &workers, &asked(3));
    assert_eq!(count(&deployment, "two"), 4);
    deployment.order(order("three", 50), &workers, &asked(4));
    assert_eq!((count(&deployment, "three"), count(&deployment, "two")), (2, 2));
    // What only some have had is nothing to go back to.
    deployment.order(order("four", 50), &workers, &asked(5));
    assert_eq!((count(&deployment, "four"), count(&deployment, "two")), (2, 2));
    deployment.order(order("four", 25), &workers, &asked(6));
    assert_eq!((count(&deployment, "four"), count(&deployment, "two")), (1, 3));
    // An image that came after what the others run stays.
    deployment.order(order("one", 100), &workers, &asked(7));
    assert!(deployment.learn(&digest("image"), "/app/plugin.wasm", &asked(8)));
    deployment.order(order("two", 25), &workers, &asked(9));
    let images = workers.map(|worker| aim(&deployment, worker, "image"));
    assert_eq!(images.iter().filter(|found| **found == "two").count(), 1);
    assert_eq!(images.iter().filter(|found| **found == "image").count(), 3);
}

#[test]
fn when_all_that_were_in_have_gone_the_first_of_the_others_is() {
    let mut deployment = fleet();
    assert!(!deployment.refill(&["w"]), "nothing is wanted");
    deployment.order(order("two", 1), &["a", "b", "c"], &asked(2));
    let (one, rest): (Vec<&str>, Vec<&str>) =
        ["a", "b", "c"].into_iter().partition(|worker| deployment.includes(worker));
    assert_eq!(one.len(), 1);
    assert!(!deployment.refill(&["a", "b", "c"]) && !deployment.refill(&[]));
    let before = deployment.clone();
    assert!(deployment.refill(&rest));
    assert_eq!(rest.iter().filter(|worker| deployment.includes(worker)).count(), 1);
    assert!(deployment.includes(one[0]), "and it is in when it comes back");
    assert!(!deployment.is_decided_since(&before), "that is nobody's decision");
}

#[test]
fn a_document_is_what_it_was_when_it_is_read_again() {
    let mut deployment = fleet();
    deployment.order(order("two", 25), &["a", "b"], &asked(2));
    let written = json!(deployment);
    assert_eq!(serde_json::from_value::<Deployment>(written.clone()).unwrap(), deployment);
    assert_eq!(written["wanted"]["digest"], digest("two").to_string());
    assert_eq!((&written["share"], &written["history"][1]["why"]), (&json!(25), &json!("deploy")));
    let later = serde_json::from_value::<Deployment>({
        let mut later = written;
        later["format"] = json!(2);
        later
    });
    assert!(!later.unwrap().is_known_form());
}

proptest! {
    #[test]
    fn whatever_is_decided_the_last_decision_counts_and_the_document_stays_small(
        steps in prop::collection::vec((0..3_u8, 0..60_u8, 1..=100_u8), 1..120),
    ) {
        let living = ["a", "b", "c"];
        let mut deployment = Deployment::new();
        for (at, (what, name, share)) in (1_u64..).zip(steps) {
            let before = deployment.clone();
            let name = name.to_string();
            match what {
                0 => {
                    let share = if share > 50 { 100 } else { share };
                    deployment.order(order(&name, share), &living, &asked(at));
                    let taken = living.iter().filter(|worker| deployment.includes(worker)).count();
                    prop_assert!(taken >= Share::try_from(share).unwrap().of(living.len()));
                    for worker in living.iter().filter(|worker| deployment.includes(worker)) {
                        prop_assert_eq!(deployment.aim(worker, &digest(&name)).digest, digest(&name));
                    }
                    prop_assert!(deployment.is_decided_since(&before));
                }
                1 => {
                    let is_known = before.file(&digest(&name)).is_some();
                    let is_first = before.files.is_empty();
                    prop_assert_eq!(deployment.learn(&digest(&name), "/app", &asked(at)), !is_known);
                    if !is_known && !is_first {
                        prop_assert_eq!(deployment.aim("a", &digest(&name)).digest, digest(&name));
                    }
                    // Nobody else does anything else because of it.
                    for other in &before.files {
                        if deployment.file(&other.digest).is_some() {
                            prop_assert_eq!(deployment.aim("b", &other.digest), before.aim("b", &other.digest));
                        }
                    }
                }
                _ => {
                    deployment.refill(&living);
                    prop_assert!(deployment.wanted.is_none() || living.iter().any(|worker| deployment.includes(worker)));
                }
            }
        }
        prop_assert!(deployment.files.len() <= FILES && json!(deployment).to_string().len() < 64 * 1024);
    }
}
