//! What an answer to `PublishBatch` means for each of its messages. The table is in the module `aws::outcome`, which the
//! sinks of both services share.

use aws_sdk_sns::operation::publish_batch::PublishBatchOutput;
use postrider_core::Outcome;

use crate::aws::of_entry;

/// The outcomes of so many messages, whose ids in the request are their places.
pub(super) fn of_answer(answer: &PublishBatchOutput, count: usize) -> Vec<Outcome> {
    let mut outcomes = vec![Outcome::Unknown("the service did not tell of it".into()); count];
    let mut put = |id: Option<&str>, outcome: Outcome| {
        if let Some(place) = id.and_then(|id| id.parse().ok()).and_then(|at: usize| outcomes.get_mut(at)) {
            *place = outcome;
        }
    };
    answer.successful().iter().for_each(|entry| put(entry.id(), Outcome::Accepted));
    answer
        .failed()
        .iter()
        .for_each(|entry| put(Some(entry.id()), of_entry(entry.code(), entry.message(), entry.sender_fault())));
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_sns::types::{BatchResultErrorEntry, PublishBatchResultEntry};

    #[test]
    fn each_message_has_the_outcome_of_its_own_entry() {
        let bad = |id: &str, code: &str| BatchResultErrorEntry::builder().id(id).code(code).sender_fault(true).build();
        let answer = PublishBatchOutput::builder()
            .successful(PublishBatchResultEntry::builder().id("2").message_id("m").build())
            .failed(bad("0", "InvalidParameter").expect("built"))
            .failed(bad("3", "KMSThrottling").expect("built"))
            .build();
        let kinds: Vec<_> = of_answer(&answer, 4).iter().map(Outcome::kind).collect();
        assert_eq!(kinds, ["reject", "unknown", "accepted", "retry"]);
    }
}
