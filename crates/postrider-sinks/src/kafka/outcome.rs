//! What a delivery report, or a refusal to take a message, means.
//!
//! | error | outcome | why |
//! |---|---|---|
//! | none | accepted | all replicas in sync have it |
//! | larger than `max_message_bytes` | reject | nothing was sent |
//! | MSG_SIZE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD of a request with this message alone | reject | this message is not wanted |
//! | the same of a request with others | sent again alone | it may be the fault of another |
//! | unknown topic or partition, INVALID_TOPIC | retry | the operator makes the topic or changes the route |
//! | authentication or authorization failed | retry | the operator gives the right |
//! | NOT_ENOUGH_REPLICAS, no leader, storage error, throttled, policy, version or timestamp refused | retry | not written; a change at the broker can mend it |
//! | corrupt on the way | retry | the broker did not write it |
//! | time ran out before there was a partition to send it to | retry | nothing was sent |
//! | the producer's queue stays full | busy | nothing was sent |
//! | time ran out otherwise, REQUEST_TIMED_OUT, the connection broke | unknown | it may have arrived |
//! | NOT_ENOUGH_REPLICAS_AFTER_APPEND | unknown | the leader has it and may lose it |
//! | fatal error of the producer, sequence errors, purged | unknown | it may have arrived |
//! | anything else | unknown | it may have arrived |
//!
//! librdkafka knows of each message whether it was perhaps written, but the library that leads to it does not pass that on; so
//! time that ran out is unknown also for messages that were never sent. The class is that of the last answer: of a message
//! that was sent more than once, an earlier one may have been written without an answer.

use std::time::Duration;

use postrider_core::Outcome;
use rdkafka::error::RDKafkaErrorCode::{self as Code, *};

/// When to come again if the producer has no room.
const NO_ROOM: Duration = Duration::from_secs(1);

/// What a report says of a message that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) code: Code,
    /// Whether librdkafka had found a partition for it.
    pub(super) placed: bool,
    /// The last problem of the connection at that time, if there was one.
    pub(super) trouble: Option<Code>,
}

impl Failure {
    /// Whether the fault may be that of another message in the same request.
    pub(super) fn may_be_anothers(self) -> bool {
        matches!(self.code, MessageSizeTooLarge | MessageBatchTooLarge | InvalidRecord | InvalidDifferentRecord)
    }

    /// The outcome.
    pub(super) fn outcome(self) -> Outcome {
        let Self { code, trouble, .. } = self;
        match code {
            MessageSizeTooLarge | MessageBatchTooLarge => {
                Outcome::Reject(format!("it is larger than Kafka or max_message_bytes allows ({code})"))
            }
            InvalidRecord => Outcome::Reject(format!("Kafka refuses it as no valid record of its topic ({code})")),
            UnknownTopic | UnknownPartition | UnknownTopicOrPartition | InvalidTopic => {
                Outcome::retry(format!("Kafka has no such topic ({code}); create it, or change the route"))
            }
            Authentication | SaslAuthenticationFailed | UnsupportedSASLMechanism | IllegalSASLState => {
                Outcome::retry(format!("Kafka does not know the user ({code}); check username and password"))
            }
            TopicAuthorizationFailed | ClusterAuthorizationFailed | SecurityDisabled => {
                Outcome::retry(format!("Kafka does not allow it ({code}); give the user the right to write"))
            }
            NotEnoughReplicas | ISRInsufficient => {
                Outcome::retry(format!("too few replicas of the partition are in sync ({code})"))
            }
            LeaderNotAvailable
            | NotLeaderForPartition
            | ReplicaNotAvailable
            | BrokerNotAvailable
            | KafkaStorageError
            | InvalidMessage
            | InvalidTimestamp
            | PolicyViolation
            | UnsupportedVersion
            | UnsupportedCompressionType
            | UnsupportedForMessageFormat
            | UnsupportedFeature
            | ThrottlingQuotaExceeded
            | InvalidRequiredAcks
            | InvalidDifferentRecord => Outcome::retry(format!("Kafka did not take it ({code})")),
            MessageTimedOut if !self.placed => {
                Outcome::retry(format!("nothing was sent: no partition of the topic was found in time{}", of(trouble)))
            }
            QueueFull => Outcome::Busy { after: NO_ROOM, why: "the producer's queue is full".into() },
            MessageTimedOut => Outcome::Unknown(format!("Kafka did not confirm it in time{}", of(trouble))),
            NotEnoughReplicasAfterAppend => {
                Outcome::Unknown(format!("it was written to too few replicas, and may be lost ({code})"))
            }
            _ => Outcome::Unknown(format!("Kafka did not confirm it ({code}){}", of(trouble))),
        }
    }
}

/// The names of errors are librdkafka's own and hold nothing of a message.
pub(super) fn of(trouble: Option<Code>) -> String {
    trouble.map(|code| format!("; the last problem of the connection: {code}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r55_every_error_has_its_class() {
        for (code, placed, expected) in [
            (MessageSizeTooLarge, true, "reject"),
            (MessageBatchTooLarge, true, "reject"),
            (InvalidRecord, true, "reject"),
            (InvalidDifferentRecord, true, "retry"),
            (UnknownTopic, false, "retry"),
            (UnknownPartition, true, "retry"),
            (UnknownTopicOrPartition, true, "retry"),
            (InvalidTopic, true, "retry"),
            (Authentication, true, "retry"),
            (SaslAuthenticationFailed, true, "retry"),
            (TopicAuthorizationFailed, true, "retry"),
            (ClusterAuthorizationFailed, true, "retry"),
            (NotEnoughReplicas, true, "retry"),
            (NotLeaderForPartition, true, "retry"),
            (KafkaStorageError, true, "retry"),
            (InvalidMessage, true, "retry"),
            (InvalidTimestamp, true, "retry"),
            (MessageTimedOut, false, "retry"),
            (MessageTimedOut, true, "unknown"),
            (RequestTimedOut, true, "unknown"),
            (NotEnoughReplicasAfterAppend, true, "unknown"),
            (BrokerTransportFailure, true, "unknown"),
            (OutOfOrderSequenceNumber, true, "unknown"),
            (Fatal, true, "unknown"),
            (PurgeQueue, true, "unknown"),
            (PurgeInflight, true, "unknown"),
            (UnknownProducerId, true, "unknown"),
            (Unknown, true, "unknown"),
            (QueueFull, true, "busy"),
        ] {
            assert_eq!(Failure { code, placed, trouble: None }.outcome().kind(), expected, "{code}");
        }
    }

    #[test]
    fn the_last_problem_of_the_connection_is_told() {
        let failure = Failure { code: MessageTimedOut, placed: true, trouble: Some(AllBrokersDown) };
        let Outcome::Unknown(why) = failure.outcome() else { panic!("it is unknown") };
        assert!(why.contains("AllBrokersDown"), "{why}");
    }
}
