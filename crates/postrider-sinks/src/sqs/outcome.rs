//! What an answer to `SendMessageBatch` means for each of its messages. The table is in the module `aws::outcome`, which
//! the sinks of both services share.

use aws_sdk_sqs::operation::send_message_batch::SendMessageBatchOutput;
use postrider_core::Outcome;

use crate::aws::of_entry;

/// The outcomes of so many messages, whose ids in the request are their places.
pub(super) fn of_answer(answer: &SendMessageBatchOutput, count: usize) -> Vec<Outcome> {
    let mut outcomes = vec![Outcome::Unknown("the service did not tell of it".into()); count];
    let mut put = |id: &str, outcome: Outcome| {
        if let Some(place) = id.parse().ok().and_then(|at: usize| outcomes.get_mut(at)) {
            *place = outcome;
        }
    };
    answer.successful().iter().for_each(|entry| put(entry.id(), Outcome::Accepted));
    answer
        .failed()
        .iter()
        .for_each(|entry| put(entry.id(), of_entry(entry.code(), entry.message(), entry.sender_fault())));
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_sqs::types::{BatchResultErrorEntry, SendMessageBatchResultEntry};

    #[test]
    fn each_message_has_the_outcome_of_its_own_entry() {
        let good = SendMessageBatchResultEntry::builder().id("2").message_id("m").md5_of_message_body("x").build();
        let bad = |id: &str, code: &str| BatchResultErrorEntry::builder().id(id).code(code).sender_fault(true).build();
        let answer = SendMessageBatchOutput::builder()
            .successful(good.expect("built"))
            .failed(bad("0", "InvalidMessageContents").expect("built"))
            .failed(bad("3", "KmsThrottled").expect("built"))
            .failed(bad("99", "nobody").expect("built"))
            .build()
            .expect("built");
        let kinds: Vec<_> = of_answer(&answer, 4).iter().map(Outcome::kind).collect();
        assert_eq!(kinds, ["reject", "unknown", "accepted", "retry"]);
    }
}
