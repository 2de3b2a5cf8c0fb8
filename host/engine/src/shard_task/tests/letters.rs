//! Dead letters, as the loop hands them to their place.

use super::fakes::STREAM_ARN;
use super::*;

#[tokio::test(start_paused = true)]
async fn a_letter_says_which_stream_of_that_name_its_record_came_from() {
    let failure = FailurePolicy { then: Then::DeadLetter, ..options().failure };
    let options = Options { failure, ..options() };
    let run = Run::start_with(options, [(1..=3).collect()], false, |_, batch| {
        Ok(failing(batch, |number| number == 2, false))
    })
    .await;
    run.until("all is checkpointed", |run| run.checkpoint() == "3/0").await;
    let stored = run.letters.stored.lock().unwrap();
    let streams: Vec<_> = stored.iter().map(|letter| (&*letter.stream, &*letter.stream_arn)).collect();
    assert_eq!(streams, [("s", STREAM_ARN)]);
}
