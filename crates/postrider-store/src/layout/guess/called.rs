//! What columns and states are usually called, without underscores and capitals; the likeliest first.

pub(super) const ID: [&str; 8] = ["id", "eventid", "messageid", "outboxid", "uuid", "guid", "eventuuid", "messageuuid"];
pub(super) const NAMESPACE: [&str; 1] = ["namespace"];
pub(super) const TOPIC: [&str; 13] = [
    "topic",
    "eventtype",
    "eventname",
    "messagetype",
    "aggregatetype",
    "destination",
    "routingkey",
    "provider",
    "channel",
    "queue",
    "subject",
    "type",
    "kind",
];
pub(super) const EVENT_TYPE: [&str; 3] = ["eventtype", "type", "eventname"];
pub(super) const AGGREGATE_TYPE: [&str; 2] = ["aggregatetype", "entitytype"];
pub(super) const KEY: [&str; 9] = [
    "key",
    "messagekey",
    "partitionkey",
    "orderingkey",
    "aggregateid",
    "entityid",
    "groupid",
    "recipientid",
    "subjectid",
];
pub(super) const TENANT: [&str; 5] = ["tenantid", "tenant", "organizationid", "orgid", "workspaceid"];
pub(super) const DEDUPE_KEY: [&str; 6] =
    ["dedupekey", "dedupkey", "idempotencykey", "deduplicationkey", "deduplicationid", "uniquekey"];
pub(super) const PAYLOAD: [&str; 10] = [
    "payload",
    "payloadjson",
    "body",
    "data",
    "message",
    "content",
    "eventdata",
    "eventpayload",
    "event",
    "serializedevent",
];
pub(super) const PAYLOAD_BYTES: [&str; 3] = ["payloadbytes", "rawpayload", "rawbody"];
pub(super) const HEADERS: [&str; 4] = ["headers", "messageheaders", "metadata", "attributes"];
pub(super) const STATUS: [&str; 6] =
    ["status", "state", "deliverystatus", "outboxstatus", "eventstatus", "messagestatus"];
/// What is said of a row that was sent. Columns are called so, with `is` before it or `flag` behind it.
const SENT: [&str; 30] = [
    "processed",
    "published",
    "sent",
    "delivered",
    "dispatched",
    "done",
    "completed",
    "complete",
    "handled",
    "finished",
    "exported",
    "forwarded",
    "emitted",
    "relayed",
    "pushed",
    "transmitted",
    "transferred",
    "propagated",
    "replicated",
    "broadcast",
    "synced",
    "synchronized",
    "notified",
    "posted",
    "submitted",
    "acked",
    "acknowledged",
    "consumed",
    "shipped",
    "produced",
];
const BEFORE_MARK: [&str; 5] = ["hasbeen", "already", "is", "was", "has"];
const BEHIND_MARK: [&str; 6] = ["indicator", "flag", "mark", "ind", "yn", "bit"];
/// What turns it round.
const NOT_YET: [&str; 5] = ["not", "be", "should", "must", "never"];
/// What a flag of a row says that was not sent.
pub(super) const NO: [&str; 5] = ["n", "no", "f", "false", "0"];

/// Whether a name, without what people write differently, says that a row was sent.
pub(super) fn is_mark(plain: &str) -> bool {
    let bare = BEFORE_MARK.iter().find_map(|word| plain.strip_prefix(word)).unwrap_or(plain);
    let bare = BEHIND_MARK.iter().find_map(|word| bare.strip_suffix(word)).unwrap_or(bare);
    SENT.contains(&bare) || SENT.contains(&plain)
}

/// Whether one of the words of a name says that a row was sent.
pub(super) fn speaks_of_sending(name: &str) -> bool {
    let words = words(name);
    let any = |known: &[&str]| words.iter().any(|word| known.contains(&word.as_str()));
    any(&SENT) && !any(&NOT_YET)
}

/// The words of a name in snake or camel case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase();
    }
    words
}

/// Whether a name, without what people write differently, is known for something else than what was sent.
pub(super) fn is_for_something_else(plain: &str) -> bool {
    let known: [&[&str]; 22] = [
        &ID,
        &NAMESPACE,
        &TOPIC,
        &EVENT_TYPE,
        &AGGREGATE_TYPE,
        &KEY,
        &TENANT,
        &DEDUPE_KEY,
        &PAYLOAD,
        &PAYLOAD_BYTES,
        &HEADERS,
        &LOCKED_BY,
        &LOCKED_UNTIL,
        &LOCKED_AT,
        &LAST_ATTEMPT_AT,
        &ATTEMPTS,
        &MAX_ATTEMPTS,
        &NEXT_ATTEMPT_AT,
        &SEQ,
        &LAST_ERROR,
        &CREATED_AT,
        &UPDATED_AT,
    ];
    known.iter().any(|names| names.contains(&plain))
}
pub(super) const LOCKED_BY: [&str; 7] =
    ["lockedby", "claimedby", "leasedby", "reservedby", "workerid", "lockowner", "leaseowner"];
pub(super) const LOCKED_UNTIL: [&str; 9] = [
    "lockeduntil",
    "leaseuntil",
    "leaseduntil",
    "claimeduntil",
    "reserveduntil",
    "leaseexpiresat",
    "lockexpiresat",
    "lockuntil",
    "invisibleuntil",
];
pub(super) const LOCKED_AT: [&str; 8] =
    ["lockedat", "claimedat", "leasedat", "reservedat", "processingstartedat", "startedat", "pickedat", "pickedupat"];
pub(super) const LAST_ATTEMPT_AT: [&str; 5] =
    ["lastattemptat", "lasttriedat", "lasttryat", "attemptedat", "lastattempt"];
pub(super) const ATTEMPTS: [&str; 11] = [
    "attempts",
    "attemptcount",
    "retrycount",
    "retries",
    "tries",
    "trycount",
    "numattempts",
    "numretries",
    "deliveryattempts",
    "failurecount",
    "failures",
];
pub(super) const MAX_ATTEMPTS: [&str; 4] = ["maxattempts", "maxretries", "maxtries", "retrylimit"];
pub(super) const NEXT_ATTEMPT_AT: [&str; 14] = [
    "nextattemptat",
    "nextretryat",
    "nexttryat",
    "retryat",
    "dueat",
    "availableat",
    "visibleat",
    "scheduledat",
    "scheduledfor",
    "deliverat",
    "sendat",
    "runat",
    "processafter",
    "notbefore",
];
pub(super) const SEQ: [&str; 5] = ["seq", "sequence", "sequencenumber", "position", "ordinal"];
pub(super) const LAST_ERROR: [&str; 6] =
    ["lasterror", "error", "errormessage", "lasterrormessage", "failurereason", "lastfailure"];
pub(super) const CREATED_AT: [&str; 8] =
    ["createdat", "created", "createdon", "occurredat", "insertedat", "enqueuedat", "recordedat", "timestamp"];
pub(super) const UPDATED_AT: [&str; 6] =
    ["updatedat", "updated", "updatedon", "modifiedat", "changedat", "lastmodifiedat"];
pub(super) const DELIVERED_AT: [&str; 19] = [
    "deliveredat",
    "publishedat",
    "sentat",
    "processedat",
    "dispatchedat",
    "completedat",
    "finishedat",
    "processedon",
    "publishedon",
    "senton",
    "deliveredon",
    "dispatchedon",
    "completedon",
    "completiondate",
    "completeddate",
    "processeddate",
    "publisheddate",
    "delivereddate",
    "sentdate",
];

pub(super) const PENDING: [&str; 12] = [
    "pending",
    "new",
    "ready",
    "queued",
    "waiting",
    "created",
    "unsent",
    "open",
    "unprocessed",
    "scheduled",
    "enqueued",
    "unpublished",
];
pub(super) const PROCESSING: [&str; 11] = [
    "processing",
    "publishing",
    "sending",
    "inprogress",
    "inflight",
    "delivering",
    "running",
    "locked",
    "claimed",
    "leased",
    "started",
];
pub(super) const DELIVERED: [&str; 10] = [
    "delivered",
    "published",
    "sent",
    "processed",
    "dispatched",
    "completed",
    "complete",
    "done",
    "succeeded",
    "success",
];
pub(super) const DEAD: [&str; 9] = [
    "dead",
    "deadlettered",
    "deadletter",
    "givenup",
    "gaveup",
    "abandoned",
    "exhausted",
    "discarded",
    "failedpermanently",
];
pub(super) const FAILED: [&str; 5] = ["failed", "retry", "retrying", "errored", "error"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_that_rows_were_sent_or_does_not() {
        for name in ["processed", "issent", "processedflag", "hasbeenpublished", "exported", "sentyn"] {
            assert!(is_mark(name), "{name}");
        }
        for name in ["sentby", "consent", "issue", "flag", "processedcount", "present"] {
            assert!(!is_mark(name), "{name}");
        }
        assert!(speaks_of_sending("sent_to_kafka") && speaks_of_sending("kafkaSent") && speaks_of_sending("SENT"));
        assert!(!speaks_of_sending("consent") && !speaks_of_sending("not_sent") && !speaks_of_sending("toBeSent"));
    }
}
